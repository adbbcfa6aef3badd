#pragma once

// A client's request (optional fields, OpenAI names) → complete, validated engine requests: text
// rendered and tokenized, defaults resolved, ids in the vocabulary, lengths within the model's.
// Thread: const methods on any thread (text pool); shares the tokenizer and the template, both
// immutable, and a cache that no thread waits for. Units: tokens.
// Failure: INVALID_ARGUMENT with the field as param.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/chat/chat_template.h"
#include "frontend/openai/chat_request.h"
#include "frontend/openai/completion_request.h"
#include "frontend/openai/decision_request.h"
#include "frontend/openai/generative_scoring_request.h"
#include "frontend/openai/pooling_request.h"
#include "frontend/processing/beam_search.h"
#include "frontend/processing/chat_constraint.h"
#include "frontend/processing/embedded_parts.h"
#include "frontend/processing/fill_in_middle.h"
#include "frontend/processing/image_prompt.h"
#include "frontend/processing/input_config.h"
#include "frontend/processing/reasoning_tokens.h"
#include "frontend/processing/sampling_resolver.h"
#include "frontend/processing/template_traits.h"
#include "frontend/processing/torch_tensor.h"
#include "frontend/text/encoded_text_cache.h"
#include "frontend/text/tokenizer.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// What a request brings besides its body.
struct RequestContext {
  std::string external_id;  // "cmpl-<id>": the response's id
  double arrival_time = 0;  // unix seconds
  int64_t max_model_len = 0;
  std::optional<int32_t> data_parallel_rank;
  std::optional<std::string> session_id;  // from a header; the body's field wins over it
  wire::RawValue lora_request;            // the adapter that `model` names; nil: none
};

// The engine requests of one API request: prompt-major, n for each prompt, so choice i is
// requests[i] and belongs to prompt i / n. Of a beam search: one for each prompt, from which the
// search makes those of its steps; choices are n for each prompt all the same.
struct ProcessedRequest {
  std::vector<wire::EngineCoreRequest> requests;
  int64_t n = 1;
  std::optional<BeamOptions> beams;
  std::string_view warning;  // a part of the request has no effect; static text, mostly empty
  size_t num_choices() const { return requests.size() * static_cast<size_t>(beams ? n : 1); }
  // Whether the response shows logprobs of the prompt: the steps of a beam search ask for none.
  bool has_prompt_logprobs() const {
    return requests.front().sampling_params.prompt_logprobs.has_value();
  }
  std::string tool_tag;                        // of a chat (ChatConstraint)
  int64_t num_prompt_tokens = 0;               // of all prompts, each once
  std::optional<int64_t> num_image_tokens;     // of these, where there are images
  std::shared_ptr<const MessagePlan> message;  // of a chat; null: text is content
  // One of each per prompt; empty unless the response may show them.
  std::vector<std::string> prompt_texts;
  std::vector<std::vector<TokenId>> prompt_token_ids;
};

class InputProcessor {
 public:
  // Without a chat template, chat requests are refused. tool_template: for chats that show tools;
  // without it they get the same template.
  InputProcessor(InputConfig config, std::shared_ptr<const Tokenizer> tokenizer,
                 std::optional<ChatTemplate> chat_template,
                 std::optional<ChatTemplate> tool_template = std::nullopt);
  InputProcessor(const InputProcessor&) = delete;

  StatusOr<ProcessedRequest> Process(CompletionRequest request,
                                     const RequestContext& context) const;
  StatusOr<ProcessedRequest> Process(ChatRequest request, const RequestContext& context) const;
  // A request for each item, whose one token has the logprobs of the labels.
  StatusOr<ProcessedRequest> Process(GenerativeScoringRequest request,
                                     const RequestContext& context) const;
  // A request for each question, whose one token has the logprobs of its options' labels.
  StatusOr<ProcessedRequest> Process(DecisionRequest request, const RequestContext& context) const;
  // For a model that pools: a request for each input. REQUIRES: config().pooling.
  StatusOr<ProcessedRequest> Process(PoolingRequest request, const RequestContext& context) const;
  // Conversations as the prompts of one request, whose first one has the settings of all.
  StatusOr<ProcessedRequest> ProcessBatch(std::vector<ChatRequest> conversations,
                                          const RequestContext& context) const;

  // A request for each pair of texts; of an embedder for each text, the queries first.
  StatusOr<ProcessedRequest> Process(ScoreRequest request, const RequestContext& context) const;

  // The conversation as prompt text, by the request's template or the model's. Moves the messages
  // out of the request.
  StatusOr<std::string> RenderChat(ChatRequest& request) const;
  // Its ids, those of images included. Likewise. REQUIRES: its images are loaded.
  StatusOr<std::vector<TokenId>> ChatTokens(ChatRequest& request) const;

  // Whether the model takes the request's images, before they are loaded.
  Status CheckImages(const ChatRequest& request) const;
  // How they are prepared. REQUIRES: CheckImages was OK, and there are some.
  StatusOr<ImageSpec> ImageSpecOf(const ChatRequest& request) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // The template of chats without tools; empty without one.
  std::string chat_template_source() const {
    return chat_template_ ? chat_template_->source() : std::string();
  }
  const InputConfig& config() const { return config_; }
  const TemplateTraits& template_traits() const { return template_traits_; }
  TokenId vocab_size() const { return sampling_.vocab_size(); }

 private:
  StatusOr<std::string> RenderChat(ChatRequest& request, const ChatTemplate& chat_template) const;
  bool ShowsTools(const ChatRequest& request) const;

  struct Prompt {
    std::vector<TokenId> token_ids;  // zeros for the rows of embeddings
    std::string text;
    std::optional<TorchTensor> embeddings = {};
    std::vector<bool> is_token = {};  // with embeddings among tokens: which positions are tokens
    std::vector<PlacedImage> images = {};
  };
  struct MaxTokens {
    std::optional<int64_t> requested;  // by the client
    const char* field;
    std::optional<int64_t> fallback;  // when the client requested nothing
    bool echo_only = false;           // 0 is allowed: the response is the prompt alone
  };
  // What of a chat its engine requests need.
  struct ChatFacts {
    const JsonDocument* template_kwargs = nullptr;
    ChatConstraint constraint;
  };

  StatusOr<wire::EngineCoreRequest> CommonParts(const GenerationRequest& request,
                                                std::optional<int64_t> logprobs,
                                                bool echoes_logprobs, const ChatFacts& chat,
                                                const RequestContext& context) const;
  StatusOr<int64_t> CheckLengths(const GenerationRequest& request, const MaxTokens& max_tokens,
                                 int64_t prompt_len, int64_t max_model_len) const;
  void AddPrompt(const GenerationRequest& request, Prompt prompt, wire::EngineCoreRequest model,
                 ProcessedRequest* result) const;
  StatusOr<ProcessedRequest> Finish(const GenerationRequest& request, std::vector<Prompt> prompts,
                                    const MaxTokens& max_tokens, std::optional<int64_t> logprobs,
                                    bool number_prompts, const ChatFacts& chat,
                                    const RequestContext& context) const;
  // The prompts that are embeddings, then the others.
  StatusOr<std::vector<Prompt>> CompletionPrompts(const CompletionRequest& request,
                                                  int64_t max_model_len) const;
  StatusOr<std::vector<std::vector<TokenId>>> ScoredTokens(const GenerativeScoringRequest& request,
                                                           const Prompts& parts,
                                                           bool add_special_tokens,
                                                           int64_t max_model_len) const;
  // The chat in which the user says this, with the request's instructions and variables.
  StatusOr<std::vector<TokenId>> DecisionChat(const DecisionRequest& request, std::string text,
                                              int64_t max_model_len) const;
  StatusOr<Prompt> ReadEmbeddings(std::string_view base64) const;
  StatusOr<Prompt> EmbeddedChatPrompt(const ChatRequest& request, const EmbeddedParts& parts,
                                      std::string_view rendered, int64_t max_model_len) const;
  // REQUIRES: the images are loaded.
  StatusOr<Prompt> ImageChatPrompt(const ChatRequest& request, const std::vector<ChatImage>& images,
                                   const std::string& rendered, int64_t max_model_len) const;
  // Counts the bytes of the images of a request's choices.
  Status CheckImageBytes(const std::vector<PlacedImage>& images, int64_t num_copies,
                         int64_t* num_bytes) const;
  StatusOr<TorchTensor> SpliceRows(const std::vector<bool>& is_token,
                                   const std::vector<size_t>& parts,
                                   const std::vector<TorchTensor>& tensors) const;
  // `before` and the request's suffix with the gap between them.
  StatusOr<std::vector<TokenId>> TokenizeAround(const CompletionRequest& request,
                                                const std::string& before,
                                                int64_t max_model_len) const;
  // Refuses text that cannot fit before it costs a tokenization.
  Status CheckTextBytes(size_t num_bytes, int64_t max_model_len) const;
  Status SetReasoning(const GenerationRequest& request, const ChatConstraint& constraint,
                      wire::EngineCoreRequest* model) const;
  StatusOr<std::optional<BeamOptions>> MakeBeams(const GenerationRequest& request,
                                                 std::optional<int64_t> logprobs,
                                                 wire::SamplingParams* sampling) const;
  StatusOr<std::vector<TokenId>> Tokenize(const GenerationRequest& request, std::string_view text,
                                          bool add_special_tokens, int64_t max_model_len) const;
  // In the case that the model reads texts in.
  void SetCase(std::vector<std::string>* texts) const;
  // The ids of one text, truncated as the request says.
  StatusOr<std::vector<TokenId>> PoolingInput(const PoolingRequest& request, std::string_view text,
                                              int64_t max_model_len) const;
  Status RenderConversations(PoolingRequest* request) const;
  struct PoolingTokens {
    std::vector<TokenId> token_ids;
    std::optional<int64_t> second_begin = {};  // of a pair with token types
  };
  static Status CheckTokenRows(const PoolerConfig& pooling,
                               const std::vector<PoolingTokens>& inputs);
  StatusOr<ProcessedRequest> PoolingRequests(const PoolingRequest& request,
                                             std::vector<PoolingTokens> inputs,
                                             const RequestContext& context) const;
  static Status CheckComparisons(const PoolerConfig& pooling,
                                 const std::vector<PoolingTokens>& inputs, size_t num_queries);
  StatusOr<PoolingTokens> PairTokens(const ScoreRequest& request, const std::string& query,
                                     const std::string& document, int64_t max_model_len) const;
  StatusOr<std::string> RenderScore(const ScoreRequest& request, const std::string& query,
                                    const std::string& document) const;
  // Its first tokens, if the limit is not 0.
  StatusOr<std::string> CutText(const std::string& text, int64_t max_tokens) const;
  Status CheckPooling(const PoolingRequest& request, const RequestContext& context) const;
  StatusOr<std::vector<TokenId>> CheckTokens(const GenerationRequest& request,
                                             const std::vector<int64_t>& ids,
                                             int64_t max_model_len) const;
  Status Truncate(const GenerationRequest& request, int64_t max_model_len,
                  std::vector<TokenId>* ids) const;
  StatusOr<int64_t> ResolveMaxTokens(const MaxTokens& max_tokens, int64_t prompt_len,
                                     int64_t max_model_len) const;

  const InputConfig config_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::optional<ChatTemplate> chat_template_;
  const std::optional<ChatTemplate> tool_template_;
  const std::unique_ptr<EncodedTextCache> encoded_texts_;
  const std::optional<FillInMiddle> fill_in_middle_;
  const SamplingResolver sampling_;
  const ReasoningTokens reasoning_;
  const TemplateTraits template_traits_;  // found with the members above
};

}  // namespace tandem
