//! What the compiler says to the five likeliest mistakes.
//!
//! The expected texts are those of the stable toolchain at hand; another compiler words its part
//! differently, so the comparison runs only where `COMPILE_FAIL` is set, as `scripts/test.sh` does.
//! That the programs do not compile is checked everywhere.

#[test]
fn mistakes_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
