//! What Azure Front Door's health probes do, rule by rule (F1 to F10 of docs/presets.md): each test's comment begins with its row.
