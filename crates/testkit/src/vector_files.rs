//! The test data in `tests/vectors`.

use std::{fs, path::Path};

use serde_json::Value;

/// One group of the vectors in a file, such as `http.json`.
pub fn group(file: &str, name: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let text = fs::read_to_string(folder.join(file)).expect("the vectors are there");
    let mut file: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    match file[name].take() {
        Value::Array(vectors) => vectors,
        other => panic!("{name} is no list: {other}"),
    }
}
