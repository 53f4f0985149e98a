"""The window: views over services over item models over a store; only this part knows Qt."""
