"""The ground floor: errors, strict JSON, durable files and safe text. Imports nothing above it."""
