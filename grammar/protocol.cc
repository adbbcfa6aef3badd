#include "grammar/protocol.h"

namespace tandem {
namespace {

// The id's halves, mask_row, allows_special_tokens, the number of tokens, max_run, that of drafts.
constexpr size_t kHeaderWords = 7;

}  // namespace

std::string PackGrammarSpec(const GrammarSpec& spec) {
  std::string packed;
  packed.reserve(spec.text.size() + 2);
  packed += static_cast<char>(spec.kind);
  packed += static_cast<char>(spec.blanks);
  return packed += spec.text;
}

StatusOr<GrammarSpec> UnpackGrammarSpec(std::string_view packed) {
  const auto is_known = [&](size_t i, auto last) {
    return packed.size() > i && packed[i] >= 0 && packed[i] <= static_cast<char>(last);
  };
  if (!is_known(0, GrammarKind::kStructuralTag) || !is_known(1, JsonBlanks::kOne)) {
    return DataLossError("a malformed grammar");
  }
  return GrammarSpec{.kind = static_cast<GrammarKind>(packed[0]),
                     .blanks = static_cast<JsonBlanks>(packed[1]),
                     .text = std::string(packed.substr(2))};
}

size_t NumStepWords(const MatcherStep& step) {
  return kHeaderWords + step.tokens.size() + step.drafts.size();
}

void AppendStep(const MatcherStep& step, std::vector<int32_t>* packet) {
  CHECK_LE(step.tokens.size(), kMaxStepTokens);
  packet->insert(
      packet->end(),
      {static_cast<int32_t>(step.matcher_id), static_cast<int32_t>(step.matcher_id >> 32),
       step.mask_row, step.allows_special_tokens ? 1 : 0, static_cast<int32_t>(step.tokens.size()),
       step.max_run, static_cast<int32_t>(step.drafts.size())});
  packet->insert(packet->end(), step.tokens.begin(), step.tokens.end());
  packet->insert(packet->end(), step.drafts.begin(), step.drafts.end());
}

std::optional<MatcherStep> TakeStep(std::span<const int32_t>* packet) {
  if (packet->size() < kHeaderWords) return std::nullopt;
  const std::span<const int32_t> words = *packet;
  if (words[4] < 0 || words[6] < 0) return std::nullopt;
  const auto num_tokens = static_cast<size_t>(words[4]), num_drafts = static_cast<size_t>(words[6]);
  if (num_tokens + num_drafts > words.size() - kHeaderWords) return std::nullopt;
  const auto low = static_cast<int64_t>(static_cast<uint32_t>(words[0]));
  *packet = words.subspan(kHeaderWords + num_tokens + num_drafts);
  return MatcherStep{.matcher_id = (int64_t{words[1]} << 32) | low,
                     .mask_row = words[2],
                     .allows_special_tokens = words[3] != 0,
                     .tokens = words.subspan(kHeaderWords, num_tokens),
                     .max_run = words[5],
                     .drafts = words.subspan(kHeaderWords + num_tokens, num_drafts)};
}

}  // namespace tandem
