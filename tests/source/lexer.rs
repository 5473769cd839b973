//! Blanks out strings and comments, so that a brace in a string is no brace.

/// The source with comments and the insides of literals turned into blanks, line for line and byte for byte.
/// The quotes of strings stay.
pub(crate) fn mask(source: &str) -> String {
    let mut lexer = Lexer { bytes: source.as_bytes(), at: 0, masked: Vec::with_capacity(source.len()) };
    while let Some(&byte) = lexer.bytes.get(lexer.at) {
        lexer.step(byte);
    }
    lexer.masked.iter().map(|&byte| if byte.is_ascii() { char::from(byte) } else { '_' }).collect()
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    masked: Vec<u8>,
}

impl Lexer<'_> {
    fn step(&mut self, byte: u8) {
        match byte {
            b'/' if self.peek(1) == b'/' => self.line_comment(),
            b'/' if self.peek(1) == b'*' => self.block_comment(),
            b'"' => self.string(),
            b'r' if self.raw_hashes().is_some() && self.starts_word() => self.raw_string(),
            b'\'' => self.quote(),
            _ => self.keep(),
        }
    }

    fn line_comment(&mut self) {
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            self.blank();
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => depth += 1,
                (b'*', b'/') => depth -= 1,
                _ => {
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.keep();
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'"' => return self.keep(),
                b'\\' => {
                    self.blank();
                    self.blank();
                }
                _ => self.blank(),
            }
        }
    }

    fn raw_string(&mut self) {
        let hashes = self.raw_hashes().unwrap_or(0);
        for _ in 0..hashes + 2 {
            self.keep();
        }
        while self.at < self.bytes.len() {
            let ends = self.peek(0) == b'"' && (1..=hashes).all(|ahead| self.peek(ahead) == b'#');
            if ends {
                for _ in 0..=hashes {
                    self.keep();
                }
                return;
            }
            self.blank();
        }
    }

    /// A character in quotes, or the tick of a lifetime.
    fn quote(&mut self) {
        let rest = std::str::from_utf8(&self.bytes[self.at + 1..]).unwrap_or_default();
        let mut chars = rest.chars();
        let length = match (chars.next(), chars.next()) {
            (Some('\\'), Some(_)) => rest[2..].find('\'').map(|end| end + 2),
            (Some(one), Some('\'')) => Some(one.len_utf8()),
            _ => None,
        };
        self.keep();
        for _ in 0..length.map_or(0, |inside| inside + 1) {
            self.blank();
        }
    }

    /// How many `#` stand between the `r` here and a quote; `None` if this is no raw string.
    fn raw_hashes(&self) -> Option<usize> {
        let rest = &self.bytes[self.at + 1..];
        let hashes = rest.iter().take_while(|&&byte| byte == b'#').count();
        (rest.get(hashes) == Some(&b'"')).then_some(hashes)
    }

    /// Whether a name begins here, a `b` or `c` of a byte or C string before it aside.
    fn starts_word(&self) -> bool {
        let before = |back: usize| self.at.checked_sub(back).map_or(b' ', |at| self.bytes[at]);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !is_name(before(1)) || (matches!(before(1), b'b' | b'c') && !is_name(before(2)))
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn keep(&mut self) {
        self.masked.push(self.peek(0));
        self.at += 1;
    }

    fn blank(&mut self) {
        if self.at < self.bytes.len() {
            self.masked.push(if self.peek(0) == b'\n' { b'\n' } else { b' ' });
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[track_caller]
    fn assert_masked(source: &str, expected: &str) {
        let masked = mask(source);
        assert_eq!(masked.trim_end(), expected);
        assert_eq!(masked.len(), source.len());
        assert_eq!(masked.lines().count(), source.lines().count());
    }

    #[test]
    fn comments_vanish_and_lines_stay() {
        assert_masked("a // {\nb", "a\nb".replace('\n', "     \n").as_str());
        assert_masked("a /* { /* } */ \n { */ b", "a              \n      b");
        assert_masked("/// ```\nfn f() {}", "       \nfn f() {}");
    }

    #[test]
    fn literals_lose_their_insides() {
        assert_masked(r#"f("{ \" }") {}"#, r#"f("      ") {}"#);
        assert_masked(r###"f(r#"{ " }"#) {}"###, r###"f(r#"     "#) {}"###);
        assert_masked(r#"f(br"{\") {}"#, r#"f(br"  ") {}"#);
        assert_masked("f(b\"\\\\\") {", "f(b\"  \") {");
    }

    #[test]
    fn characters_are_literals_and_lifetimes_are_not() {
        assert_masked("'{' '\\'' '\\u{7d}' b'\"' {", "'   '    '        b'   {");
        assert_masked("fn f<'a>(x: &'a str) {", "fn f<'a>(x: &'a str) {");
        assert_masked("'é' {", "'    {");
    }

    #[test]
    fn a_name_that_ends_in_r_begins_no_raw_string() {
        assert_masked("for\"{\" {", "for\" \" {");
    }
}
