"""The HTTP side of the service: the app, its routes and everything around them."""
