//~ `&str` is no quota
//~ `"10/second".parse::<Quota>()?`
use tower_ratelimit::LocalLimiter;

fn main() {
    let _ = LocalLimiter::new("10/second");
}
