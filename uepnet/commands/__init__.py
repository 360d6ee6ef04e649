"""One module a subcommand: `configure(parser)` declares it, `run(args)` does it."""
