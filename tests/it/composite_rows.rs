//! What Google Cloud's composite health checks do, rule by rule (C1 to C7 of docs/presets.md): each test's comment begins with its row.
