"""HTTP: routes, authentication, and the one place that turns errors into answers. Thin: questions go to the store's
views, changes to the services that the server hands in. Imports model, wire and store; knows no scheduling.
"""
