"""Video files and live streams: frames, counts, recordings, plots and annotated video."""
