"""The one room that knows pytato: its nodes, its two versions, and the way from its DAG to our IR."""
