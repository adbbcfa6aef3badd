#pragma once

// How far a request's reasoning has come, read from its tokens by the marks that its frontend sent
// (wire::ReasoningMarks): how much of a budget is used up, and where the answer begins, which is
// what a grammar holds. A pure function of the wire's record and the tokens, so a preemption or a
// second engine changes nothing.
// Thread: engine loop. Borrows the marks. Units: tokens, positions in the request's tokens.

#include <cstdint>
#include <optional>
#include <span>

#include "common/ids.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class ReasoningReader {
 public:
  // The request must outlive it. num_prompt_tokens: without outputs of an earlier run.
  ReasoningReader(const wire::EngineCoreRequest& request, int32_t num_prompt_tokens);

  // Takes in the tokens after those that were read before. token_ids: all of the request's.
  void Read(std::span<const TokenId> token_ids) {
    if (marks_ != nullptr) ReadMarks(token_ids);
  }

  bool has_budget() const { return budget_ >= 0; }
  // The token that must come next, because the budget is used up; kNoToken: none must. REQUIRES:
  // all tokens are read.
  TokenId ForcedToken(std::span<const TokenId> token_ids) const;
  // Whether a token must perhaps be forced after num_unknown more that are not known yet.
  bool MayForceAfter(int32_t num_unknown) const {
    return has_budget() && MayExceedAfter(num_unknown);
  }

  // Whether a grammar waits for the end of the reasoning, and the position at which the answer
  // begins; nullopt: it has not begun.
  bool holds_grammar_back() const { return holds_grammar_back_; }
  std::optional<int32_t> answer_begin() const { return answer_begin_; }

 private:
  bool MayExceedAfter(int32_t num_unknown) const;
  void ReadMarks(std::span<const TokenId> token_ids);
  void ReadLast(std::span<const TokenId> known);

  const wire::ReasoningMarks* marks_ = nullptr;  // null: nothing depends on the reasoning
  int32_t num_prompt_tokens_ = 0;
  int32_t budget_ = -1;  // -1: none
  bool holds_grammar_back_ = false;
  int32_t num_read_ = 0;
  int32_t thinking_begin_ = -1;  // after the begin mark of a reasoning that goes on; -1: none does
  std::optional<int32_t> answer_begin_;
};

}  // namespace tandem
