//~~ `&str` is not a limiter
//~ `"10/second".parse::<Quota>()?`
use tower_ratelimit_client::Pacer;

fn main() {
    let _ = Pacer::new("10/second");
}
