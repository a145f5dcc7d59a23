//! A file's members, as Pingora's `ServiceDiscovery`.
//!
//! Not here: when the file is read (`roll`).

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use pingora::lb::discovery::ServiceDiscovery;

use super::Desk;
use super::name::{Discovered, Name, merged};
use super::srv::Service;
use crate::snapshot::{Located, Source};

/// A file's members.
#[derive(Debug, Clone)]
pub struct MembersFile {
    /// The file.
    pub path: PathBuf,
    /// What is known.
    pub desk: Arc<Desk>,
}

impl MembersFile {
    /// Its members.
    pub fn names(&self) -> Vec<Name> {
        let (roll, _) = self.desk.rolls().roll(&self.path);
        roll.members.iter().map(|member| Name { member: member.clone(), desk: self.desk.clone() }).collect()
    }

    /// Its services.
    pub fn services(&self) -> Vec<Service> {
        let (roll, _) = self.desk.rolls().roll(&self.path);
        roll.services.iter().map(|service| Service { service: service.clone(), desk: self.desk.clone() }).collect()
    }

    /// Its members and services where they are.
    pub async fn located(&self, source: &Source) -> Vec<Located> {
        let mut located = Vec::new();
        for name in self.names() {
            located.extend(name.located(source).await);
        }
        for service in self.services() {
            located.extend(service.located(source).await);
        }
        // What it said before still holds, and whoever looks at them may want to know.
        if let (_, Some(trouble)) = self.desk.rolls().roll(&self.path) {
            located.iter_mut().for_each(|located| located.trouble = located.trouble.take().or(Some(trouble.clone())));
        }
        located
    }
}

#[async_trait]
impl ServiceDiscovery for MembersFile {
    async fn discover(&self) -> pingora::Result<Discovered> {
        let services = self.services().into_iter().flat_map(|service| service.names());
        merged(self.names().into_iter().chain(services).collect()).await
    }
}

#[cfg(test)]
mod tests {
    use pingora::lb::Backends;

    use super::super::name::hash;
    use super::*;
    use crate::config::{self, Config};

    fn config(members: &str) -> Arc<Config> {
        let text = format!(
            "listeners: [{{ address: \"127.0.0.1:0\" }}]\npools: {{ web: {{ members: [{members}], probe: off }} }}\n\
             routes: [{{ pool: web }}]\n"
        );
        Arc::new(config::parse("proxy.yaml", &text, &|_| None).unwrap().config)
    }

    #[tokio::test]
    async fn pingora_can_be_fed_by_a_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("members.yaml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("- 10.0.0.1:80\n- { address: \"10.0.0.2:81\", weight: 3 }\n- { address: \"10.0.0.3:80\", weight: 0 }\n");
        let config = config(&format!("{{ file: \"{}\" }}", path.display()));
        let desk = Desk::new(&config);
        desk.prepare(&config).await.unwrap();
        let file = MembersFile { path: path.clone(), desk: desk.clone() };
        let (backends, enabled) = file.discover().await.unwrap();
        let shown: Vec<_> = backends.iter().map(|b| (b.addr.to_string(), b.weight, enabled[&hash(b)])).collect();
        let expected = [("10.0.0.1:80", 1, true), ("10.0.0.2:81", 3, true), ("10.0.0.3:80", 0, false)];
        assert_eq!(shown, expected.map(|(address, weight, enabled)| (address.to_owned(), weight, enabled)));
        write("- 10.0.0.9:80\n");
        desk.prepare(&config).await.unwrap();
        let view = Backends::new(Box::new(file));
        view.update(|_| {}).await.unwrap();
        let shown: Vec<String> = view.get_backend().iter().map(|backend| backend.addr.to_string()).collect();
        assert_eq!(shown, ["10.0.0.9:80"]);
    }

    #[tokio::test]
    async fn addresses_are_found_without_asking_and_a_service_without_targets_is_nobody() {
        let config = config("\"10.0.0.1:80\", \"[fd00::1]:80\", { srv: _http._tcp.app.invalid }");
        let desk = Desk::new(&config);
        desk.prepare(&config).await.unwrap();
        let found = desk.found(&config).await;
        let shown: Vec<_> = found.of("web").iter().map(|l| (l.label(), l.trouble.is_some())).collect();
        let expected = [("10.0.0.1:80", false), ("[fd00::1]:80", false), ("_http._tcp.app.invalid", true)];
        assert_eq!(shown, expected.map(|(label, trouble)| (label.to_owned(), trouble)));
        desk.stop();
    }
}
