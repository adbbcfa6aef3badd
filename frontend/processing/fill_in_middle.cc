#include "frontend/processing/fill_in_middle.h"

#include <algorithm>

namespace tandem {
namespace {

struct Row {
  std::string_view before;
  std::string_view after;
  std::string_view last = {};
  bool after_comes_first = false;
  std::string_view stop = {};
};

constexpr Row kRows[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},        // Qwen coders, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},              // StarCoder, Granite
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},              // SantaCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},        // DeepSeek
    {"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", true},  // Seed-Coder
    {"▁<PRE>", "▁<SUF>", "▁<MID>", false, "▁<EOT>"},               // Code Llama
    {"[PREFIX]", "[SUFFIX]", "", true},                            // Codestral
};

}  // namespace

std::optional<FillInMiddle> FindFillInMiddle(const Tokenizer& tokenizer) {
  for (const Row& row : kRows) {
    const auto before = tokenizer.TokenToId(row.before);
    const auto after = tokenizer.TokenToId(row.after);
    const auto last = tokenizer.TokenToId(row.last);
    if (!before || !after || (!last && !row.last.empty())) continue;
    FillInMiddle form;
    form.before = *before;
    form.after = *after;
    if (!row.last.empty()) form.last = last;
    form.after_comes_first = row.after_comes_first;
    if (!row.stop.empty()) form.stop = tokenizer.TokenToId(row.stop);
    return form;
  }
  return std::nullopt;
}

StatusOr<std::vector<TokenId>> EncodeContinuation(const Tokenizer& tokenizer,
                                                  std::string_view text) {
  if (tokenizer.decodes_bytes()) return tokenizer.Encode(text, false);
  // A character that merges with nothing takes the blank; its tokens are dropped.
  constexpr std::string_view kFirst = "☺";
  ASSIGN_OR_RETURN(const auto first, tokenizer.Encode(kFirst, false));
  ASSIGN_OR_RETURN(auto ids, tokenizer.Encode(std::string(kFirst) + std::string(text), false));
  const bool begins =
      first.size() <= ids.size() && std::equal(first.begin(), first.end(), ids.begin());
  if (!begins) return tokenizer.Encode(text, false);
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first.size()));
  return ids;
}

std::vector<TokenId> FillInMiddlePrompt(const FillInMiddle& form, const Tokenizer& tokenizer,
                                        std::span<const TokenId> before,
                                        std::span<const TokenId> after, bool begins) {
  std::vector<TokenId> ids;
  const auto add = [&ids](TokenId token, std::span<const TokenId> text) {
    ids.push_back(token);
    ids.insert(ids.end(), text.begin(), text.end());
  };
  const auto ends = tokenizer.Encode("", begins);
  if (ends.ok() && !ends->empty() && ends->front() == tokenizer.bos_id()) {
    ids.push_back(ends->front());
  }
  if (form.after_comes_first) add(form.after, after);
  add(form.before, before);
  if (!form.after_comes_first) add(form.after, after);
  if (form.last) ids.push_back(*form.last);
  return ids;
}

}  // namespace tandem
