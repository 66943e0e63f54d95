import { useState } from "react";
import { messageOf, signIn } from "../core/api";
import { useTitle } from "../core/hooks";
import { Mark } from "../ui/icons";
import { Trouble } from "../ui/parts";

export function SignIn({ onSignedIn }: { onSignedIn: () => void }) {
  useTitle("Sign in");
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const enter = async (): Promise<void> => {
    setBusy(true);
    try {
      await signIn(token.trim());
      setToken("");
      onSignedIn();
    } catch (failed) {
      setError(messageOf(failed));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className="alone">
      <form
        className="sign-in"
        onSubmit={(event) => {
          event.preventDefault();
          void enter();
        }}
      >
        <div className="brand">
          <Mark /> <span>Firesteel</span>
        </div>
        <h1>Sign in</h1>
        <p className="muted">
          On the machine of a node, <code>firesteel dashboard --open</code> signs you in with a link. Elsewhere, use a token.
        </p>
        <label htmlFor="token">Token</label>
        <input
          id="token"
          type="password"
          autoComplete="off"
          spellCheck={false}
          autoFocus
          required
          placeholder="fst_…"
          value={token}
          onChange={(event) => setToken(event.target.value)}
        />
        <Trouble text={error} />
        <button className="primary" disabled={busy || !token.trim()}>
          {busy ? "Signing in…" : "Sign in"}
        </button>
      </form>
    </main>
  );
}
