#pragma once

// POST /v1/completions: its two forms of answer and the handler.
// Thread: the shard's. The response classes know nothing of sockets: outputs in, JSON text out.

#include <optional>
#include <string>
#include <vector>

#include "frontend/api/collected_choice.h"
#include "frontend/api/generation.h"
#include "frontend/api/render.h"
#include "frontend/api/serve.h"
#include "frontend/openai/completion_request.h"

namespace tandem {

// What of the request the answer depends on.
struct CompletionShape {
  ResponseHead head;
  ChoiceShape choice;
  std::optional<int64_t> logprobs;  // of so many others at each token; -1: all there are
  bool echo = false;
  bool echo_only = false;  // max_tokens 0: the prompt without an answer
  bool show_prompt_logprobs = false;
  StreamUsage usage;
};
CompletionShape MakeShape(const CompletionRequest& request, const ApiOptions& options);

// Appends one JSON body to *out at the end.
class CompletionResponse final : public GenerationListener {
 public:
  // prompts: of each choice, borrowed like the tokenizer.
  CompletionResponse(const Tokenizer& tokenizer, CompletionShape shape,
                     const std::vector<ChoicePrompt>& prompts, std::string* out);
  void OnDelta(int choice, const OutputDelta& delta, const Usage& usage) override;
  void OnEnd(const Usage& usage) override;

 private:
  struct Choice {
    ChoicePrompt prompt;
    std::vector<PositionLogprobs> prompt_logprobs;
    CollectedChoice answer;
  };
  const Tokenizer& tokenizer_;
  const CompletionShape shape_;
  std::vector<Choice> choices_;
  wire::RawValue kv_transfer_params_;
  std::string* const out_;
};

// Appends events to *out.
class CompletionStream final : public GenerationListener {
 public:
  CompletionStream(const Tokenizer& tokenizer, CompletionShape shape,
                   const std::vector<ChoicePrompt>& prompts, std::string* out);
  void OnDelta(int choice, const OutputDelta& delta, const Usage& usage) override;
  void OnEnd(const Usage& usage) override;

 private:
  struct Choice {
    ChoicePrompt prompt;
    bool started = false;
    size_t text_offset = 0;
  };
  void AppendLogprobs(Choice* choice, const OutputDelta& delta, bool first);

  const Tokenizer& tokenizer_;
  const CompletionShape shape_;
  const ChunkWriter writer_;
  std::vector<Choice> choices_;
  std::string* const out_;
};

StatusOr<PreparedRequest> PrepareCompletion(const Json& body, PrepareInput input);
Awaitable<void> HandleCompletions(Exchange& exchange, ApiContext* context);

}  // namespace tandem
