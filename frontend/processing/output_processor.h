#pragma once

// One engine request's outputs → what its choice shows next: text (whole characters, stop strings
// held back), token ids, logprobs, the finish reason. Of reasoning that the request does not
// include nothing is shown; its tokens count. What each token is depends on the tokens alone, not
// on how they are cut into outputs and deltas.
// Thread: the shard that owns the stream. Borrows the tokenizer, which must outlive it. The delta
// is reused: it is valid until the next call. Cannot fail. The steady state allocates nothing.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "frontend/processing/held_tokens.h"
#include "frontend/processing/logprobs.h"
#include "frontend/processing/message_delta.h"
#include "frontend/processing/message_plan.h"
#include "frontend/text/detokenizer.h"
#include "frontend/text/stop_strings.h"
#include "frontend/text/tokenizer.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct OutputOptions {
  DetokenizerOptions detokenizer;
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  int64_t min_tokens = 0;
  int64_t stream_interval = 1;  // tokens per delta after the first
  LogprobsStyle logprobs_style;
  std::shared_ptr<const MessagePlan> message;  // null: text is content
};

class OutputProcessor {
 public:
  OutputProcessor(const Tokenizer& tokenizer, const OutputOptions& options,
                  std::span<const TokenId> prompt_token_ids);

  // The caller may move parts out of the delta. logprobs: in place of the output's, one for each
  // token. REQUIRES: !finished().
  MessageDelta& Process(const wire::EngineCoreOutput& output,
                        std::vector<PositionLogprobs> logprobs = {});

  bool finished() const { return delta_.finish_reason.has_value(); }
  // A stop string ended the choice while the engine still runs: the caller must abort it there.
  bool must_abort() const { return must_abort_; }
  const MessageDelta& delta() const { return delta_; }

  int64_t num_output_tokens() const { return num_output_tokens_; }
  // Of them, those that were reasoning; 0 without a parser of it.
  int64_t num_reasoning_tokens() const { return num_reasoning_tokens_; }
  int num_tool_calls() const { return num_begun_calls_; }  // so far

 private:
  // Returns how many of the tokens there are: a stop string may end the output before the last.
  size_t AppendText(const wire::EngineCoreOutput& output);
  // True when a stop string is complete; the choice is finished then.
  bool Show(std::string_view text, bool may_stop);
  void Finish(const wire::EngineCoreOutput& output);
  bool hides_reasoning() const { return parser_ && !options_.message->include_reasoning; }
  bool holds_logprobs() const {
    return hides_reasoning() || (parser_ && options_.message->logprobs_of_content);
  }
  // After each token's text: puts what the parser makes of raw_ into the delta.
  void ParseToken();
  void ParseRaw();
  void AddParsed(ParsedDelta parsed);
  void AddCall(ToolCallDelta& call);
  void EndMessage();

  const Tokenizer& tokenizer_;
  const OutputOptions options_;
  Detokenizer detokenizer_;
  StopStrings stop_strings_;
  MessageDelta delta_;
  std::string piece_;                      // one token's text
  std::unique_ptr<MessageParser> parser_;  // null: text is content
  std::string raw_;                        // text that the parser has not seen
  HeldTokens held_;                        // where not all are shown
  int64_t num_reasoning_tokens_ = 0;
  int num_begun_calls_ = 0;
  std::string arguments_;  // of the last call
  int64_t num_output_tokens_ = 0;
  int64_t num_shown_tokens_ = 0;
  bool must_abort_ = false;
};

}  // namespace tandem
