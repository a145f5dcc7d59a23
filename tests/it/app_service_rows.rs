//! What Azure App Service's health check do, rule by rule (A1 to A18 of docs/presets.md): each test's comment begins with its row.
