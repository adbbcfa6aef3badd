#pragma once

// Strings as Python's str treats them: by character, with Unicode's cases and spaces.
// Pure; any thread. All text is well-formed UTF-8; indexes and widths count characters.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::jinja {

// As Python's repr of a str: quotes, escapes, and \x \u \U for what cannot be printed.
void AppendQuoted(std::string_view text, std::string* out);
// As json.dumps of a str.
void AppendJsonString(std::string_view text, bool ensure_ascii, std::string* out);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Title(std::string_view text);       // str.title(): each letter after a non-letter
std::string Capitalize(std::string_view text);  // first character upper, the rest lower
std::string SwapCase(std::string_view text);

bool IsSpaceChar(char32_t c);
bool IsAlphaChar(char32_t c);
bool IsDigitChar(char32_t c);
bool IsAlnumChar(char32_t c);
bool IsWordChar(char32_t c);  // \w
// Python's isupper / islower: cased characters, all of that case.
bool IsUpperText(std::string_view text);
bool IsLowerText(std::string_view text);

// Characters to strip; empty stands for white space.
std::string_view Strip(std::string_view text, std::string_view chars, bool left, bool right);

// The text's characters as views.
std::vector<std::string_view> SplitChars(std::string_view text);
// Byte position of a character; text.size() when there are fewer.
size_t BytePosition(std::string_view text, size_t char_idx);
std::string Pad(std::string_view text, size_t left, size_t right, std::string_view fill);

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to,
                       int64_t max_count);  // -1: all
size_t CountOccurrences(std::string_view text, std::string_view part);

// str.split(): an empty separator splits at runs of white space. max_splits -1: no limit.
std::vector<std::string_view> SplitText(std::string_view text, std::string_view separator,
                                        int64_t max_splits, bool from_right);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

std::string EscapeHtml(std::string_view text);
std::string StripTags(std::string_view text);
std::string UrlQuote(std::string_view text, std::string_view safe);

}  // namespace tandem::jinja
