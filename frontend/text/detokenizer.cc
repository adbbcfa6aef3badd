#include "frontend/text/detokenizer.h"

namespace tandem {

using std::string_view_literals::operator""sv;

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options,
                         std::span<const TokenId> prompt_tail)
    : tokenizer_(tokenizer),
      options_(options),
      stream_(tokenizer.StartDecoding(ByteRuns::kByCharacter)) {
  std::string shown;  // by the prompt
  for (const TokenId id : prompt_tail) {
    if (IsShown(id)) stream_.Append(tokenizer_.Prepared(id), &shown);
  }
}

bool Detokenizer::IsShown(TokenId id) const {
  return tokenizer_.Contains(id) && !(options_.skip_special_tokens && tokenizer_.IsSpecial(id));
}

void Detokenizer::Append(TokenId id, std::string* text) {
  if (!IsShown(id)) {
    if (!tokenizer_.IsSpecial(id)) last_was_added_ = false;
    return;
  }
  const bool added = tokenizer_.IsAdded(id);
  const bool as_spelled = added && last_was_added_ && !options_.spaces_between_special_tokens;
  last_was_added_ = added;
  if (held_.empty() && !as_spelled) {  // nearly every token: no detour through held_
    const size_t before = text->size();
    stream_.Append(tokenizer_.Prepared(id), text);
    if (IsSure(std::string_view(*text).substr(before))) return;
    held_.assign(*text, before);
    text->resize(before);
  } else if (as_spelled) {
    AppendAsSpelled(id);
  } else {
    stream_.Append(tokenizer_.Prepared(id), &held_);
  }
  if (!IsSure(held_) && held_.size() <= kMaxHeldBytes) return;
  text->append(held_);
  held_.clear();
}

bool Detokenizer::IsSure(std::string_view held) const {
  return !stream_.inside_character() && !held.ends_with("\uFFFD"sv);
}

void Detokenizer::AppendAsSpelled(TokenId id) {
  const std::string_view spelled = tokenizer_.IdToToken(id).value_or("");
  if (tokenizer_.decodes_bytes()) {
    stream_.Append(spelled, &held_);
    return;
  }
  // The stream must know of the token; what it adds may begin with a blank.
  std::string decoded;
  stream_.Append(tokenizer_.Prepared(id), &decoded);
  held_ += spelled;
}

void Detokenizer::Flush(std::string* text) {
  stream_.End(&held_);
  text->append(held_);
  held_.clear();
}

}  // namespace tandem
