const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 (RFC 4648, section 4) without padding.
pub(super) fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity((bytes.len() * 4).div_ceil(3));
    for group in bytes.chunks(3) {
        let byte = |position: usize| u32::from(group.get(position).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let sextets = [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift & 0x3F) as usize]);
        text.extend_from_slice(&sextets[..=group.len()]);
    }
    text
}
