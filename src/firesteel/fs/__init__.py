"""Files, wherever they are: small durable ones (`files`), locks between processes (`locks`), and whole file systems behind one
protocol (`store`): local (`local`) and through fsspec (`remote`), opened by what a path says (`urls` for those of options)."""
