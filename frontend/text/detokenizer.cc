#include "frontend/text/detokenizer.h"

#include <algorithm>

#include "common/utf8.h"

namespace tandem {
namespace {

constexpr size_t kMaxCharBytes = 4;

// Whether the bytes, decoded, end in a character that is sure: neither broken nor U+FFFD.
bool EndsInCharacter(std::string_view bytes) {
  if (bytes.empty()) return false;
  size_t lead = bytes.size() - 1;
  const size_t first = bytes.size() - std::min(bytes.size(), kMaxCharBytes);
  while (lead > first && IsUtf8Continuation(bytes[lead])) --lead;
  const Utf8Sequence last = ReadUtf8(bytes, lead);
  return last.well_formed && lead + last.size == bytes.size() &&
         last.code_point != kReplacementChar;
}

// Size of the unfinished character that bytes end in; 0 when they end in anything else.
size_t UnfinishedBytes(std::string_view bytes) {
  const size_t first = bytes.size() - std::min(bytes.size(), kMaxCharBytes);
  for (size_t lead = bytes.size(); lead-- > first;) {
    if (IsUtf8Continuation(bytes[lead])) continue;
    const Utf8Sequence last = ReadUtf8(bytes, lead);
    return last.truncated && lead + last.size == bytes.size() ? last.size : 0;
  }
  return 0;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options,
                         std::span<const TokenId> prompt_tail)
    : tokenizer_(tokenizer), options_(options) {
  if (!tokenizer_.is_byte_level()) {
    window_.assign(prompt_tail.begin(), prompt_tail.end());
    return;
  }
  for (const TokenId id : prompt_tail) {
    if (options_.skip_special_tokens && tokenizer_.IsSpecial(id)) continue;
    held_ += tokenizer_.TokenBytes(id);
    held_.erase(0, held_.size() - UnfinishedBytes(held_));
  }
}

void Detokenizer::Append(TokenId id, std::string* text) {
  if (!tokenizer_.is_byte_level()) return AppendByWindow(id, text);
  const bool added = tokenizer_.IsAdded(id);
  if (options_.skip_special_tokens && added && tokenizer_.IsSpecial(id)) return;
  const bool spell = !options_.spaces_between_special_tokens && added && last_was_added_;
  last_was_added_ = added;
  AppendBytes(spell ? tokenizer_.IdToToken(id).value_or("") : tokenizer_.TokenBytes(id), text);
}

void Detokenizer::AppendBytes(std::string_view bytes, std::string* text) {
  if (bytes.empty()) return;
  if (held_.empty() && EndsInCharacter(bytes)) {
    AppendLossyUtf8(bytes, text);
    return;
  }
  held_ += bytes;
  if (EndsInCharacter(held_)) {
    Flush(text);
  } else if (held_.size() > kMaxHeldBytes) {
    const size_t unfinished = UnfinishedBytes(held_);
    AppendLossyUtf8(std::string_view(held_).substr(0, held_.size() - unfinished), text);
    held_.erase(0, held_.size() - unfinished);
  }
}

// The algorithm of DecodeStream.
void Detokenizer::AppendByWindow(TokenId id, std::string* text) {
  const bool skip = options_.skip_special_tokens;
  const auto is_sure = [](const std::string& decoded) { return !decoded.ends_with("\uFFFD"); };
  if (prefix_.empty() && !window_.empty()) {
    std::string prefix = tokenizer_.Decode(window_, skip);
    if (is_sure(prefix)) {
      prefix_ = std::move(prefix);
      prefix_idx_ = window_.size();
    }
  }
  window_.push_back(id);
  const std::string decoded = tokenizer_.Decode(window_, skip);
  const bool full = window_.size() - prefix_idx_ > kMaxHeldTokens;
  if (decoded.size() <= prefix_.size() || (!is_sure(decoded) && !full)) return;
  const bool added = tokenizer_.IsAdded(id);
  if (!options_.spaces_between_special_tokens && added && last_was_added_) {
    text->append(tokenizer_.IdToToken(id).value_or(""));
  } else {
    text->append(decoded, prefix_.size());
  }
  last_was_added_ = added;
  const size_t num_kept = window_.size() - prefix_idx_;
  window_.erase(window_.begin(), window_.end() - static_cast<std::ptrdiff_t>(num_kept));
  prefix_ = tokenizer_.Decode(window_, skip);
  prefix_idx_ = num_kept;
}

void Detokenizer::Flush(std::string* text) {
  if (!tokenizer_.is_byte_level()) {
    const std::string decoded = tokenizer_.Decode(window_, options_.skip_special_tokens);
    if (decoded.size() > prefix_.size()) text->append(decoded, prefix_.size());
    window_.clear();
    prefix_.clear();
    prefix_idx_ = 0;
    return;
  }
  AppendLossyUtf8(held_, text);
  held_.clear();
}

}  // namespace tandem
