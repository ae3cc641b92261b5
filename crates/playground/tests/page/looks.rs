//! Appearance of the page: all widths and colour schemes, reduced motion, and axe's rules.
//!
//! `PLAYGROUND_SCREENSHOTS=folder` keeps the screenshots for a person to see.

use std::{env, fs, path::PathBuf};

use serde_json::json;
use testkit::browser::Browser;

use crate::controls::opened;

const SIZES: [(u32, u32); 4] = [(1280, 1000), (760, 1000), (375, 900), (320, 700)];

fn keep(browser: &Browser, name: &str) {
    if let Some(folder) = env::var_os("PLAYGROUND_SCREENSHOTS") {
        let picture = browser.screenshot();
        fs::write(PathBuf::from(folder).join(format!("{name}.png")), picture).expect("a file");
    }
}

#[test]
fn it_fits_and_has_no_serious_fault_in_any_width_and_colour() {
    let Some(browser) = opened("") else {
        return;
    };
    browser.js(
        "document.getElementById('history').open = document.getElementById('answers').open = true; playground.sim.paused = false;
        document.getElementById('burst').click(); playground.step(1); playground.sim.paused = true",
    );
    for scheme in ["light", "dark"] {
        browser.set_media(&[("prefers-color-scheme", scheme)]);
        for (width, height) in SIZES {
            browser.set_size(width, height);
            // Two frames: the drawings resize with the next one.
            browser.js("globalThis.frames = 0; const next = () => { if (++globalThis.frames < 3) requestAnimationFrame(next); };
                requestAnimationFrame(next)");
            browser.eventually("it is drawn", "return globalThis.frames >= 3");
            keep(&browser, &format!("{scheme}-{width}"));
            let what = format!("{scheme}, {width} pixels");
            assert_eq!(browser.js("return innerWidth"), json!(width));
            let over = browser.js("return document.documentElement.scrollWidth - innerWidth");
            assert!(
                over.as_i64().is_some_and(|over| over <= 0),
                "{what}: {over} pixels too wide"
            );
            assert_eq!(
                browser.js(BESIDE),
                json!([true, true]),
                "{what}: A and B are compared"
            );
            let painted = browser.js(PAINTED);
            assert_eq!(
                painted,
                json!([true, true, true, true]),
                "{what}: drawings are empty"
            );
            let Some(faults) = browser.accessibility_faults() else {
                return;
            };
            assert_eq!(faults, json!([]), "{what}");
        }
    }
}

/// Whether A and B are aligned at the top, and equally wide.
const BESIDE: &str =
    "const [a, b] = playground.lanes.map((lane) => lane.root.getBoundingClientRect());
    return [a.top === b.top && a.right <= b.left, Math.abs(a.width - b.width) < 1]";

/// Whether each drawing has more than a hundred painted points.
const PAINTED: &str = "return [...document.querySelectorAll('canvas')].map((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((byte, i) => i % 4 === 3 && byte > 0).length > 100; })";

#[test]
fn nothing_moves_with_reduced_motion() {
    let Some(browser) = opened("") else {
        return;
    };
    // During an attack a hundred requests are in motion at any moment.
    let dots = "document.getElementById('attack').click();
        playground.step(0.5);
        playground.draw();
        return playground.lanes.map((lane) => lane.dots.length > 20)";
    assert_eq!(browser.js(dots), json!([true, true]));
    browser.set_media(&[("prefers-reduced-motion", "reduce")]);
    assert_eq!(browser.js(dots), json!([false, false]));
    assert_eq!(
        browser.js("return playground.lanes.map((lane) => lane.dots.length)"),
        json!([0, 0])
    );
    // A request is decided at once, and the counts show it.
    let count = "return playground.lanes[0].clients[2].counts.reduce((sum, count) => sum + count)";
    let before = browser.js(count).as_u64().expect("a count");
    browser.js("document.getElementById('one').click()");
    assert_eq!(browser.js(count), json!(before + 1));
    keep(&browser, "still");
}
