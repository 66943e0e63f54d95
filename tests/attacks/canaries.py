"""Secrets that are planted wherever one may be, and must be found nowhere else (S27)."""

from __future__ import annotations

MARK = "caNaRy"
"""In each of them, so that one look finds them all."""


def canary(name: str) -> str:
    return f"{MARK}-{name}-5f3c9a51"


CONFIGURATION = {
    "engine.token": canary("engine-token"),
    "client.token": canary("client-token"),
    "spark.hadoop.fs.s3a.secret.key": canary("s3a"),
    "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net": canary("azure"),
    "spark.ssl.keyStorePassword": canary("keystore"),
    "spark.some.endpoint": f"https://somebody:{canary('url')}@example.com/path",
    "spark.some.option": f"--user x --password {canary('argument')}",
    "engine.jvm-options": f"-Djavax.net.ssl.trustStorePassword={canary('jvm')}",
}
"""Options of the node, in a file that only its owner reads."""

ENVIRONMENT = {
    "AWS_SECRET_ACCESS_KEY": canary("environment"),
    "DATABASE_URL": f"postgresql://somebody:{canary('environment-url')}@example.com/db",
}

GRAPH = {
    "name": "canary",
    "description": f"connects with password={canary('description')}",
    "settings": {"spark": {"spark.hadoop.fs.s3a.access.key": canary("setting")}},
    "vertices": [
        {
            "kind": "source",
            "name": "a",
            "format": "jdbc",
            "options": {
                "url": f"jdbc:postgresql://host/db?user=x&password={canary('jdbc-url')}",
                "dbtable": "t",
                "password": canary("option"),
            },
        },
        {"kind": "sql", "name": "q", "query": f"SELECT * FROM a WHERE url <> 'https://x:{canary('query')}@host/'"},
        {
            "kind": "sink",
            "name": "o",
            "input": "q",
            "format": "csv",
            "path": f"s3a://key:{canary('path')}@bucket/out",
            "options": {"sasl.jaas.config": canary("jaas")},
        },
    ],
}
"""For an admin, who may set such settings."""
