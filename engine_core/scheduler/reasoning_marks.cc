#include "engine_core/scheduler/reasoning_marks.h"

#include <algorithm>

#include "engine_core/scheduler/model_output.h"

namespace tandem {
namespace {

bool EndsWith(std::span<const TokenId> token_ids, std::span<const TokenId> mark) {
  return !mark.empty() && mark.size() <= token_ids.size() &&
         std::equal(mark.begin(), mark.end(),
                    token_ids.end() - static_cast<ptrdiff_t>(mark.size()));
}

}  // namespace

ReasoningReader::ReasoningReader(const wire::EngineCoreRequest& request, int32_t num_prompt_tokens)
    : num_prompt_tokens_(num_prompt_tokens),
      budget_(std::max(request.sampling_params.thinking_token_budget.value_or(-1), -1)) {
  if (!request.own.reasoning) return;
  const wire::ReasoningMarks& marks = *request.own.reasoning;
  holds_grammar_back_ = request.reasoning_ended == false && !marks.end.empty();
  if (budget_ >= 0 || holds_grammar_back_) marks_ = &marks;
}

void ReasoningReader::ReadMarks(std::span<const TokenId> token_ids) {
  while (static_cast<size_t>(num_read_) < token_ids.size()) {
    ++num_read_;
    ReadLast(token_ids.first(static_cast<size_t>(num_read_)));
  }
}

void ReasoningReader::ReadLast(std::span<const TokenId> known) {
  if (EndsWith(known, marks_->begin)) {
    thinking_begin_ = num_read_;
    return;
  }
  const bool begins_call = EndsWith(known, marks_->tool_call);
  const bool ends = begins_call || EndsWith(known, marks_->end);
  if (ends || EndsWith(known, marks_->forced_end)) thinking_begin_ = -1;
  if (!ends || answer_begin_ || num_read_ <= num_prompt_tokens_) return;
  const auto num_of_answer = begins_call ? static_cast<int32_t>(marks_->tool_call.size()) : 0;
  answer_begin_ = std::max(num_read_ - num_of_answer, num_prompt_tokens_);
}

TokenId ReasoningReader::ForcedToken(std::span<const TokenId> token_ids) const {
  if (budget_ < 0 || thinking_begin_ < 0 || num_read_ - thinking_begin_ < budget_) return kNoToken;
  const std::span<const TokenId> thought = token_ids.subspan(static_cast<size_t>(thinking_begin_));
  const std::span<const TokenId> end = marks_->forced_end;
  // The longest part of the end that is there already, by its own doing or by ours.
  size_t num_there = std::min(end.size() - 1, thought.size());
  while (!std::equal(end.begin(), end.begin() + static_cast<ptrdiff_t>(num_there),
                     thought.end() - static_cast<ptrdiff_t>(num_there))) {
    --num_there;
  }
  return end[num_there];
}

bool ReasoningReader::MayExceedAfter(int32_t num_unknown) const {
  if (marks_ == nullptr) return false;
  // Without reasoning so far, its begin may be the first of them.
  const int32_t num_thought =
      thinking_begin_ >= 0 ? num_read_ - thinking_begin_ + num_unknown : num_unknown - 1;
  return num_thought >= budget_;
}

}  // namespace tandem
