#include "deploy/cli/bench/request_body.h"

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/random.h"
#include "deploy/cli/bench/bench_api.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

void AddSampling(const BenchServeOptions& options, Json* body) {
  const auto add = [&](const char* name, const auto& value) {
    if (value) (*body)[name] = *value;
  };
  if (options.ignore_eos || options.dataset_name.starts_with("random"))
    (*body)["ignore_eos"] = true;
  add("temperature", options.temperature);
  add("top_p", options.top_p);
  add("top_k", options.top_k);
  add("min_p", options.min_p);
  add("frequency_penalty", options.frequency_penalty);
  add("presence_penalty", options.presence_penalty);
  add("repetition_penalty", options.repetition_penalty);
}

Json TextOrIds(const BenchPrompt& prompt) {
  return prompt.token_ids.empty() ? Json(prompt.text) : Json(prompt.token_ids);
}

// The text, and after it the images.
Json ChatContent(const BenchPrompt& prompt) {
  if (prompt.images.empty()) return prompt.text;
  Json parts = Json::array({Json{{"type", "text"}, {"text", prompt.text}}});
  for (const std::string& url : prompt.images) {
    parts.push_back({{"type", "image_url"}, {"image_url", {{"url", url}}}});
  }
  return parts;
}

}  // namespace

const std::string& RequestModel(const BenchServeOptions& options, const std::string& model,
                                size_t index) {
  const std::vector<std::string>& adapters = options.lora_modules;
  if (adapters.empty()) return model;
  const bool in_turn = options.lora_assignment == "round-robin";
  const uint64_t drawn =
      in_turn ? index : MixBits(MixBits(static_cast<uint64_t>(options.seed)) + index);
  return adapters[drawn % adapters.size()];
}

std::string RequestBody(const BenchServeOptions& options, const std::string& model,
                        const BenchPrompt& prompt) {
  Json body;
  body["model"] = model;
  switch (BackendOf(options.backend).api) {
    case BenchApi::kCompletions:
      body["prompt"] = TextOrIds(prompt);
      body["repetition_penalty"] = 1.0;
      body["max_tokens"] = prompt.output_tokens;
      if (options.logprobs) body["logprobs"] = *options.logprobs;
      break;
    case BenchApi::kChat:
      body["messages"] = Json::array({Json{{"role", "user"}, {"content", ChatContent(prompt)}}});
      body["max_completion_tokens"] = prompt.output_tokens;
      if (options.logprobs) {
        body["logprobs"] = true;
        body["top_logprobs"] = *options.logprobs;
      }
      break;
    case BenchApi::kEmbeddings:
    case BenchApi::kPooling:
      body["input"] = prompt.inputs.empty() ? TextOrIds(prompt) : Json(prompt.inputs);
      body["truncate_prompt_tokens"] = -1;
      break;
    case BenchApi::kRerank:
      body["query"] = prompt.inputs.front();
      body["documents"] =
          Json(std::vector<std::string>(std::next(prompt.inputs.begin()), prompt.inputs.end()));
      body["truncate_prompt_tokens"] = -1;
      break;
  }
  if (!IsPooled(options.backend)) {
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    AddSampling(options, &body);
  }
  if (!options.extra_body.empty()) {
    body.update(Json::parse(options.extra_body, nullptr, /*allow_exceptions=*/false));
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tandem
