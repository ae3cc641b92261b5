//! Responses of language models. The reader comes as an argument: input, output and model of the response with this
//! content type in these frames.

/// The reader of a response.
pub type Read = fn(&str, &mut dyn Iterator<Item = &[u8]>) -> (u64, u64, String);

/// The first four bytes choose how the rest is split.
pub fn check(data: &[u8], read: Read) {
    let (sizes, body) = data.split_at(data.len().min(4));
    for content_type in ["application/json", "text/event-stream"] {
        let whole = read(content_type, &mut [body].into_iter());
        let each = read(content_type, &mut body.chunks(1));
        assert_eq!(each, whole, "{content_type}, a byte each: {body:?}");
        let split = read(content_type, &mut frames(body, sizes).into_iter());
        assert_eq!(split, whole, "{content_type}, by {sizes:?}: {body:?}");
        assert!(whole.2.len() <= 128, "{whole:?}");
        if !body.iter().any(u8::is_ascii_digit) {
            // Without digits there are estimates alone: at most a token for each byte of text.
            assert!(whole.1 <= body.len() as u64 && whole.0 == 0, "{whole:?}");
        }
    }
}

/// The body in frames of these sizes, again and again; a size of 0 is an empty frame.
fn frames<'b>(mut body: &'b [u8], sizes: &[u8]) -> Vec<&'b [u8]> {
    let mut frames = Vec::new();
    for size in sizes.iter().chain(&[7]).cycle() {
        if body.is_empty() {
            break;
        }
        let (frame, rest) = body.split_at(usize::from(size % 32).min(body.len()));
        frames.push(frame);
        body = rest;
    }
    frames
}
