"""From a store's object to chunks of whole lines."""
