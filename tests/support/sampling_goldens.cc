#include "tests/support/sampling_goldens.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/support/gzip/gzip_lines.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

std::vector<float> Base64Floats(const std::string& text) {
  static const std::string kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kAlphabet.find(c));
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes.push_back(static_cast<char>(bits >> num_bits & 0xff));
    }
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

SamplingConfig ConfigOf(const Json& params) {
  SamplingConfig config;
  config.temperature = params.value("temperature", 1.0f);
  config.top_p = params.value("top_p", 1.0f);
  config.top_k = params.value("top_k", 0);
  config.min_p = params.value("min_p", 0.0f);
  config.repetition_penalty = params.value("repetition_penalty", 1.0f);
  config.frequency_penalty = params.value("frequency_penalty", 0.0f);
  config.presence_penalty = params.value("presence_penalty", 0.0f);
  config.min_tokens = params.value("min_tokens", 0);
  config.min_tokens_mask = params.value("stop_token_ids", std::vector<TokenId>{});
  config.allowed_token_ids = params.value("allowed_token_ids", std::vector<TokenId>{});
  config.bad_words = params.value("bad_words_token_ids", std::vector<std::vector<TokenId>>{});
  if (params.contains("logit_bias")) {
    for (const auto& [id, bias] : params["logit_bias"].items()) {
      config.logit_bias.push_back({std::stoi(id), bias.get<float>()});
    }
  }
  return config;
}

}  // namespace

std::vector<SamplingGolden> ReadSamplingGoldens() {
  const Json json = ReadGzipJson(std::string(TANDEM_GOLDEN_DIR) + "/sampling/sampling.json");
  std::vector<SamplingGolden> cases;
  for (const Json& c : json["cases"]) {
    SamplingGolden& one = cases.emplace_back();
    one.index = c["index"];
    one.config = ConfigOf(c["params"]);
    one.prompt_ids = c["prompt_ids"].get<std::vector<TokenId>>();
    one.output_ids = c["output_ids"].get<std::vector<TokenId>>();
    one.logits = Base64Floats(c["logits"]);
    one.probs = Base64Floats(c["probs"]);
    one.argmax = c["argmax"];
    one.raw_top5_ids = c["raw_top5"][0].get<std::vector<TokenId>>();
    one.raw_top5_logprobs = c["raw_top5"][1].get<std::vector<float>>();
    one.counts.Reset(json["vocab"], 1000);
    one.counts.AddPrompt(one.prompt_ids);
    for (const TokenId id : one.output_ids) one.counts.AddOutput(id);
  }
  return cases;
}

}  // namespace tandem
