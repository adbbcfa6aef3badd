#include "deploy/cli/bench/prompt_words.h"

#include <algorithm>
#include <string_view>

namespace tandem {
namespace {

constexpr size_t kEnoughCandidates = 4096;
constexpr size_t kFewCandidates = 64;  // with fewer words prompts would repeat themselves
constexpr int kMaxCorrections = 10;

constexpr std::string_view kPlainWords[] = {
    "river", "stone",  "garden", "window", "paper", "morning", "silver", "forest",
    "lamp",  "bridge", "winter", "copper", "field", "harbor",  "letter", "cloud",
    "horse", "engine", "quiet",  "yellow", "north", "island",  "basket", "thread",
    "music", "corner", "summer", "bottle", "road",  "kitchen", "mirror", "valley"};

bool IsWord(std::string_view bytes) {
  if (bytes.size() < 3 || bytes.front() != ' ') return false;
  return std::all_of(bytes.begin() + 1, bytes.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

}  // namespace

PromptWords::PromptWords(const Tokenizer* tokenizer, uint64_t seed)
    : tokenizer_(tokenizer), random_(seed) {
  if (tokenizer_ == nullptr) return;
  if (const auto empty = tokenizer_->Encode("", true); empty.ok()) {
    num_special_tokens_ = static_cast<int64_t>(empty->size());
  }
  PickCandidates();
}

void PromptWords::PickCandidates() {
  std::vector<TokenId> words, others;
  for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (tokenizer_->IsAdded(id) || tokenizer_->IsSpecial(id)) continue;
    const std::string_view bytes = tokenizer_->TokenBytes(id);
    if (bytes.empty()) continue;
    (IsWord(bytes) ? words : others).push_back(id);
  }
  // Our own shuffle, because the library's differs between implementations.
  for (size_t i = words.size(); i > 1; --i) std::swap(words[i - 1], words[Below(i)]);
  for (const TokenId id : words) {
    if (candidates_.size() == kEnoughCandidates) break;
    // After another word, as in a prompt.
    const auto back = tokenizer_->Encode("a" + std::string(tokenizer_->TokenBytes(id)), false);
    if (back.ok() && back->size() == 2 && back->back() == id) candidates_.push_back(id);
  }
  if (candidates_.size() < kFewCandidates) {
    candidates_ = std::move(others);
    candidates_.insert(candidates_.end(), words.begin(), words.end());
  }
}

std::vector<TokenId> PromptWords::Draw(int64_t count) {
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(candidates_.empty() ? static_cast<TokenId>(Below(std::size(kPlainWords)))
                                      : candidates_[Below(candidates_.size())]);
  }
  return ids;
}

std::string PromptWords::Text(std::vector<TokenId> ids) {
  if (tokenizer_ == nullptr || candidates_.empty()) {
    std::string text;
    for (const TokenId id : ids) {
      if (!text.empty()) text += ' ';
      text += kPlainWords[static_cast<size_t>(id)];
    }
    return text;
  }
  const size_t wanted = ids.size();
  std::string text = tokenizer_->Decode(ids, false);
  for (int i = 0; i < kMaxCorrections; ++i) {
    auto back = tokenizer_->Encode(text, false);
    if (!back.ok() || back->size() == wanted) break;
    ids = std::move(*back);
    if (ids.size() > wanted) {
      ids.resize(wanted);
    } else {
      const std::vector<TokenId> more = Draw(static_cast<int64_t>(wanted - ids.size()));
      ids.insert(ids.end(), more.begin(), more.end());
    }
    text = tokenizer_->Decode(ids, false);
  }
  return text;
}

int64_t PromptWords::CountTokens(const std::string& text) const {
  if (tokenizer_ != nullptr) {
    const auto ids = tokenizer_->Encode(text, true);
    return ids.ok() ? static_cast<int64_t>(ids->size()) : 0;
  }
  // A guess: each word is a token.
  return text.empty() ? 0 : 1 + std::count(text.begin(), text.end(), ' ');
}

}  // namespace tandem
