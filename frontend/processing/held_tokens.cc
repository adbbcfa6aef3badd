#include "frontend/processing/held_tokens.h"

#include <algorithm>
#include <iterator>

namespace tandem {
namespace {

template <class T>
void EraseFirst(size_t count, std::vector<T>* values) {
  const auto end = values->begin() + static_cast<std::ptrdiff_t>(std::min(count, values->size()));
  values->erase(values->begin(), end);
}

template <class T>
void MoveFirst(size_t count, std::vector<T>* from, std::vector<T>* to) {
  const auto end = from->begin() + static_cast<std::ptrdiff_t>(std::min(count, from->size()));
  std::move(from->begin(), end, std::back_inserter(*to));
}

}  // namespace

// The token whose text is both, the end of reasoning and what follows it, is shown.
void HeldTokens::Decide(bool is_hidden, bool is_shown, MessageDelta* delta) {
  if (is_hidden) Drop(is_shown && num_parsed > 0 ? num_parsed - 1 : num_parsed);
  if (is_shown) Show(num_parsed, delta);
  if (is_hidden || is_shown) last_is_hidden = !is_shown;
}

void HeldTokens::DecideRest(bool is_hidden, MessageDelta* delta) {
  num_parsed = std::max(token_ids.size(), logprobs.size());
  if (is_hidden) Drop(num_parsed);
  Show(num_parsed, delta);
}

void HeldTokens::Drop(size_t count) {
  EraseFirst(count, &token_ids);
  EraseFirst(count, &logprobs);
  num_parsed -= count;
}

void HeldTokens::Show(size_t count, MessageDelta* delta) {
  MoveFirst(count, &token_ids, &delta->token_ids);
  MoveFirst(count, &logprobs, &delta->logprobs);
  Drop(count);
}

}  // namespace tandem
