"""The analyses of `uepnet analyse`: one module each, with `analyse(args) -> AnalysisResult`."""
