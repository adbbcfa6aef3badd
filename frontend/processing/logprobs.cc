#include "frontend/processing/logprobs.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/strings.h"

namespace tandem {
namespace {

std::string ValidUtf8(std::string_view bytes) {
  std::string text;
  while (true) {
    const size_t bad = FindInvalidUtf8(bytes);
    if (bad == std::string_view::npos) return text.append(bytes);
    text.append(bytes.substr(0, bad)).append("\xEF\xBF\xBD");
    bytes.remove_prefix(bad + 1);
    // One replacement covers the rest of the same invalid character.
    while (!bytes.empty() && (static_cast<unsigned char>(bytes[0]) & 0xC0) == 0x80) {
      bytes.remove_prefix(1);
    }
  }
}

ScoredToken Score(const Tokenizer& tokenizer, const LogprobsStyle& style, TokenId id, float logprob,
                  int64_t rank) {
  ScoredToken token;
  token.token_id = id;
  token.logprob = std::isnan(logprob) ? kLowestLogprob : std::max<double>(logprob, kLowestLogprob);
  token.rank = rank;
  if (style.as_token_ids) {
    token.text = "token_id:" + std::to_string(id);
    token.bytes = token.text;
  } else if (!style.skip_special_tokens || !tokenizer.IsSpecial(id)) {
    token.bytes = tokenizer.TokenBytes(id);
    token.text = ValidUtf8(token.bytes);
  }
  return token;
}

}  // namespace

void AppendPositionLogprobs(const Tokenizer& tokenizer, const LogprobsStyle& style,
                            const wire::LogprobsRows& rows, std::vector<PositionLogprobs>* out) {
  for (int32_t r = 0; r < rows.num_rows; ++r) {
    const size_t first = static_cast<size_t>(r) * static_cast<size_t>(rows.num_columns);
    if (rows.num_columns < 1 ||
        first + static_cast<size_t>(rows.num_columns) > rows.token_ids.size()) {
      return;
    }
    const int64_t rank = static_cast<size_t>(r) < rows.ranks.size() ? rows.ranks[r] : 0;
    PositionLogprobs position;
    position.token = Score(tokenizer, style, rows.token_ids[first], rows.logprobs[first], rank);
    position.top.push_back(position.token);
    for (int32_t c = 1; c < rows.num_columns; ++c) {
      const TokenId id = rows.token_ids[first + c];
      if (id == position.token.token_id) continue;
      position.top.push_back(Score(tokenizer, style, id, rows.logprobs[first + c], c));
    }
    out->push_back(std::move(position));
  }
}

}  // namespace tandem
