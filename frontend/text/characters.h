#pragma once

// Unicode properties that tokenizers depend on. Pure; any thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

bool IsWordChar(char32_t c);    // \w of Rust's regex crate
bool IsWhiteSpace(char32_t c);  // the White_Space property
bool IsNumeric(char32_t c);     // general category N
bool IsMark(char32_t c);        // general category M
bool IsNonspacingMark(char32_t c);
bool IsControl(char32_t c);      // categories Cc, Cf and Co
bool IsPunctuation(char32_t c);  // category P, and ASCII's symbols
// A number for each script, as the pre-tokenizer UnicodeScripts counts them; 0: none. In
// scripts.cc.
uint8_t ScriptOf(char32_t c);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// REQUIRES well-formed UTF-8.
std::string Normalize(std::string_view text, NormalForm form);
std::string Lowercase(std::string_view text);  // each character by itself
// As Python's str.lower: a capital sigma at a word's end becomes the final one.
std::string LowercaseText(std::string_view text);

}  // namespace tandem
