//! What the command line says before anything is served.

use std::net::TcpListener;

use crate::harness::process::run;
use crate::harness::proxy::{config_of, write_config};

#[test]
fn taken_admin_port_is_named_as_what_it_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    let config = config_of(&["\"127.0.0.1:1\"".to_owned()], "probe: off");
    write_config(folder.path(), &format!("admin: {{ address: \"{address}\" }}\n{config}"));
    let ended = run(folder.path(), &["run", "proxy.yaml"], &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for words in [format!("cannot listen on {address}"), "the admin listener".to_owned(), "`admin: off`".to_owned()] {
        assert!(ended.reason().contains(&words), "no {words:?} in {ended:?}");
    }
}
