//! Lines of access logs. The function that reads one comes as an argument, so that this package needs
//! nothing of the command's.

use serde_json::json;

/// A line as it was read.
#[derive(Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Microseconds since 1970.
    pub at: u64,
    pub client: Option<String>,
    pub user: Option<String>,
    pub method: Option<String>,
    pub uri: Option<String>,
    pub status: u16,
    pub user_agent: Option<String>,
}

/// The bytes are a line or none; and whatever a client sends in a request, a server's line of it is
/// read as what was sent.
pub fn check(data: &[u8], read: impl Fn(&[u8]) -> Result<LogLine, &'static str>) {
    if let Err(why) = read(data) {
        assert!(why.starts_with("it"), "{why}");
    }
    let Some((head, sent)) = data.split_at_checked(6) else {
        return;
    };
    let &[choice, zone, a, b, c, d] = head else {
        return;
    };
    // From 1973, since lesser numbers are no times, until 2106, in zones of at most 14 hours.
    let second = u64::from(u32::from_be_bytes([a, b, c, d]).max(100_000_000));
    let zone = i64::from(zone as i8 % 57) * 15;
    let sent = Sent::new(sent);
    for (line, at) in sent.lines(choice, second, zone) {
        let expected = sent.as_read(at);
        let text = String::from_utf8_lossy(&line);
        assert_eq!(read(&line), Ok(expected), "{text}");
    }
}

/// A request of a client.
struct Sent<'d> {
    user: &'d [u8],
    path: &'d [u8],
    user_agent: &'d [u8],
}

impl<'d> Sent<'d> {
    fn new(data: &'d [u8]) -> Self {
        let mut texts = data.splitn(3, |byte| *byte == b'\n');
        let mut text = || texts.next().unwrap_or_default();
        Self {
            // White space around it, or within, does not survive a format whose fields are words.
            user: text()
                .split(|byte| *byte == b' ')
                .next()
                .unwrap_or_default(),
            path: text()
                .split(|byte| *byte == b' ')
                .next()
                .unwrap_or_default(),
            user_agent: text(),
        }
    }

    /// The request's line in each format, and the time in it.
    fn lines(&self, choice: u8, second: u64, zone: i64) -> Vec<(Vec<u8>, u64)> {
        let escape = if choice & 1 == 0 { nginx } else { apache };
        let time = common_time(second, zone);
        let dash = |text: String| {
            if text.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };
        let (user, path) = (dash(escape(self.user)), escape(self.path));
        let agent = dash(escape(self.user_agent));
        let combined = format!(
            "203.0.113.7 - {user} [{time}] \"GET /{path} HTTP/1.1\" 404 5 \"-\" \"{agent}\""
        );
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let millis = second * 1_000 + u64::from(choice);
        let caddy = json!({
            "ts": millis as f64 / 1e3,
            "user_id": text(self.user),
            "request": {
                "remote_ip": "203.0.113.7",
                "method": "GET",
                "uri": format!("/{}", text(self.path)),
                "headers": {"User-Agent": [text(self.user_agent)]},
            },
            "status": 404,
        });
        let own = json!({
            "time": time,
            "remote_addr": "203.0.113.7",
            "remote_user": text(self.user),
            "request": format!("GET /{} HTTP/1.1", text(self.path)),
            "http_user_agent": text(self.user_agent),
            "status": "404",
        });
        vec![
            (combined.into_bytes(), second * 1_000_000),
            (caddy.to_string().into_bytes(), millis * 1_000),
            (own.to_string().into_bytes(), second * 1_000_000),
        ]
    }

    fn as_read(&self, at: u64) -> LogLine {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let known = |bytes| Some(text(bytes)).filter(|text| !text.is_empty() && text != "-");
        LogLine {
            at,
            client: Some("203.0.113.7".into()),
            user: known(self.user),
            method: Some("GET".into()),
            uri: Some(format!("/{}", text(self.path))),
            status: 404,
            user_agent: known(self.user_agent),
        }
    }
}

fn nginx(text: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'"' | b'\\' | ..0x20 | 0x7f.. => format!("\\x{byte:02X}"),
        byte => char::from(*byte).to_string(),
    };
    text.iter().map(escape).collect()
}

fn apache(text: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'"' => "\\\"".to_owned(),
        b'\\' => "\\\\".to_owned(),
        0x08 => "\\b".to_owned(),
        b'\n' => "\\n".to_owned(),
        b'\r' => "\\r".to_owned(),
        b'\t' => "\\t".to_owned(),
        0x0b => "\\v".to_owned(),
        ..0x20 | 0x7f.. => format!("\\x{byte:02x}"),
        byte => char::from(*byte).to_string(),
    };
    text.iter().map(escape).collect()
}

/// `21/Nov/2026:03:00:01 +0000`, counted day by day.
fn common_time(second: u64, zone: i64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let local = second.saturating_add_signed(zone * 60);
    let (mut day, mut month, mut year) = (1, 0, 1970);
    for _ in 0..local / 86_400 {
        let leaps = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let last = match month {
            1 if leaps => 29,
            1 => 28,
            3 | 5 | 8 | 10 => 30,
            _ => 31,
        };
        day += 1;
        if day > last {
            (day, month) = (1, month + 1);
        }
        if month == 12 {
            (month, year) = (0, year + 1);
        }
    }
    let (clock, sign) = (local % 86_400, if zone < 0 { '-' } else { '+' });
    format!(
        "{day:02}/{}/{year}:{:02}:{:02}:{:02} {sign}{:02}{:02}",
        MONTHS[month],
        clock / 3_600,
        clock / 60 % 60,
        clock % 60,
        zone.abs() / 60,
        zone.abs() % 60
    )
}
