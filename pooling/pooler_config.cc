#include "pooling/pooler_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/strings.h"
#include "pooling/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxSize = 1 << 24;
constexpr size_t kMaxLabels = 1 << 16;

Status Wrong(const std::string& file, const char* key, const char* must_be) {
  return InvalidArgumentError(file + ": " + key + " must be " + must_be);
}

bool IsTrue(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_boolean() && found->get<bool>();
}

std::string Text(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// 0: absent.
StatusOr<int64_t> Size(const std::string& file, const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return int64_t{0};
  if (!found->is_number_unsigned() || found->get<uint64_t>() < 1 ||
      found->get<uint64_t>() > static_cast<uint64_t>(kMaxSize)) {
    return Wrong(file, key, "a size");
  }
  return found->get<int64_t>();
}

// ---- sentence-transformers' files ----

// The names of sentence-transformers; vLLM's are those of the first three in upper case.
struct PoolingName {
  std::string_view name;
  std::string_view flag;  // its key in older files
  PoolingType type;
};
constexpr PoolingName kPoolingNames[] = {
    {"cls", "pooling_mode_cls_token", PoolingType::kCls},
    {"mean", "pooling_mode_mean_tokens", PoolingType::kMean},
    {"last", "pooling_mode_lasttoken", PoolingType::kLast},
    {"lasttoken", "pooling_mode_lasttoken", PoolingType::kLast},
    {"max", "pooling_mode_max_tokens", PoolingType::kMax},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", PoolingType::kMeanSqrtLen},
    {"weightedmean", "pooling_mode_weightedmean_tokens", PoolingType::kWeightedMean}};

StatusOr<PoolingType> TypeByName(const std::string& place, const std::string& name) {
  const auto* const found = std::ranges::find(kPoolingNames, ToLower(name), &PoolingName::name);
  if (found != std::end(kPoolingNames)) return found->type;
  return InvalidArgumentError(
      place + ": the pooling " + name +
      " must be cls, mean, lasttoken, max, mean_sqrt_len_tokens or weightedmean");
}

Status SeveralPoolings(const std::string& file) {
  return UnimplementedError(file +
                            " names several poolings, whose vectors sentence-transformers puts one "
                            "after another: one alone is built");
}

// "pooling_mode" is a name or a list of names; older files have a key for each instead.
StatusOr<PoolingType> ReadPoolingType(const std::string& file, const Json& json) {
  const auto mode = json.find("pooling_mode");
  if (mode != json.end() && mode->is_array()) {
    if (mode->size() > 1) return SeveralPoolings(file);
    if (mode->size() == 1 && (*mode)[0].is_string()) {
      return TypeByName(file, (*mode)[0].get<std::string>());
    }
    return Wrong(file, "pooling_mode", "a name");
  }
  if (const std::string name = Text(json, "pooling_mode"); !name.empty()) {
    return TypeByName(file, name);
  }
  std::optional<PoolingType> type;
  for (const auto& [key, value] : json.items()) {
    if (!key.starts_with("pooling_mode_") || value != true) continue;
    const auto* const found = std::ranges::find(kPoolingNames, key, &PoolingName::flag);
    if (found == std::end(kPoolingNames)) {
      return Wrong(file, key.c_str(), "false: there is no such pooling");
    }
    if (type) return SeveralPoolings(file);
    type = found->type;
  }
  if (!type) return InvalidArgumentError(file + " names no pooling");
  return *type;
}

// The classes of torch.nn.
struct CurveName {
  std::string_view name;
  DenseCurve curve;
};
constexpr CurveName kCurveNames[] = {
    {".Identity", DenseCurve::kNone}, {".Tanh", DenseCurve::kTanh},
    {".ReLU", DenseCurve::kRelu},     {".GELU", DenseCurve::kGelu},
    {".SiLU", DenseCurve::kSilu},     {".Sigmoid", DenseCurve::kSigmoid}};

StatusOr<PooledDense> ReadDense(const std::string& model, const std::string& folder) {
  const std::string file = model + "/" + folder + "/config.json";
  ASSIGN_OR_RETURN(const Json json, ReadModelJson(file));
  if (!json.is_object()) return InvalidArgumentError(file + " must be a JSON object");
  PooledDense dense;
  dense.folder = folder;
  ASSIGN_OR_RETURN(dense.in_features, Size(file, json, "in_features"));
  ASSIGN_OR_RETURN(dense.out_features, Size(file, json, "out_features"));
  if (dense.in_features == 0) return Wrong(file, "in_features", "given");
  if (dense.out_features == 0) return Wrong(file, "out_features", "given");
  dense.has_bias = !json.contains("bias") || IsTrue(json, "bias");
  dense.has_residual = IsTrue(json, "use_residual");
  std::string activation = Text(json, "activation_function");
  if (activation.empty()) activation = ".Tanh";
  const auto* const found = std::ranges::find_if(
      kCurveNames, [&](const CurveName& row) { return activation.ends_with(row.name); });
  if (found == std::end(kCurveNames)) {
    return Wrong(file, "activation_function",
                 "torch.nn's Identity, Tanh, ReLU, GELU, SiLU or Sigmoid");
  }
  dense.curve = found->curve;
  return dense;
}

// "1_Pooling": a folder of the model, not one elsewhere.
bool IsInside(const std::string& path) {
  return path.find("..") == std::string::npos && !path.starts_with("/");
}

// What sentence-transformers' MultiVectorEncoder leaves out of the vectors of a text.
Status ReadMask(const std::string& file, PoolerConfig* config) {
  ASSIGN_OR_RETURN(const Json json, ReadModelJson(file));
  for (const char* key : {"skiplist_words", "keep_only_token_ids"}) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    if (found == json.end() || found->empty()) continue;
    config->ignored.push_back(file + ": " + key + " has no effect: each token has its vector");
  }
  return OkStatus();
}

// own: config_sentence_transformers.json.
Status ReadModules(const std::string& model, const Json& modules, const Json& own,
                   PoolerConfig* config) {
  const std::string file = model + "/modules.json";
  if (!modules.is_array()) return InvalidArgumentError(file + " must be a list");
  config->normalize = false;
  bool pools = false;
  for (const Json& module : modules) {
    if (!module.is_object()) return InvalidArgumentError(file + " must be a list of objects");
    const std::string type = Text(module, "type"), path = Text(module, "path");
    if (!IsInside(path)) return Wrong(file, "path", "a folder of the model");
    if (type.ends_with(".Transformer")) continue;
    if (type.ends_with(".Pooling")) {
      const std::string pooling = model + "/" + path + "/config.json";
      ASSIGN_OR_RETURN(const Json json, ReadModelJson(pooling));
      if (!json.is_object()) return InvalidArgumentError(pooling + " must be a JSON object");
      ASSIGN_OR_RETURN(config->type, ReadPoolingType(pooling, json));
      pools = true;
      if (json.contains("include_prompt") && json["include_prompt"] == false) {
        config->ignored.push_back(
            pooling + ": include_prompt false has no effect: a prompt's tokens are pooled");
      }
    } else if (type.ends_with(".Dense")) {
      ASSIGN_OR_RETURN(PooledDense dense, ReadDense(model, path));
      dense.has_unit_input = std::exchange(config->normalize, false);
      config->dense.push_back(std::move(dense));
    } else if (type.ends_with(".Normalize")) {
      config->normalize = true;
    } else if (type.ends_with(".MultiVectorMask")) {
      RETURN_IF_ERROR(ReadMask(model + "/" + path + "/config.json", config));
    } else {
      return Wrong(file, "type", "Transformer, Pooling, Dense, Normalize or MultiVectorMask");
    }
  }
  if (!pools) {
    config->task = PoolingTask::kTokenEmbed;  // for late interaction
    // pylate's have no module for it.
    if (Text(own, "model_type") != "MultiVectorEncoder") config->normalize = true;
  }
  const std::string transformer = model + "/sentence_bert_config.json";
  ASSIGN_OR_RETURN(const Json json, ReadModelJson(transformer));
  if (!json.is_object()) return OkStatus();
  config->lowercases = IsTrue(json, "do_lower_case");
  ASSIGN_OR_RETURN(config->max_seq_length, Size(transformer, json, "max_seq_length"));
  return OkStatus();
}

// json: config_sentence_transformers.json.
void ReadPrompts(const Json& json, PoolerConfig* config) {
  if (const std::string name = Text(json, "default_prompt_name"); !name.empty()) {
    config->ignored.push_back("config_sentence_transformers.json: default_prompt_name " + name +
                              " has no effect, as in vLLM: requests name it by input_type of "
                              "/v2/embed, or begin with it");
  }
  // pylate's, of ColBERT.
  for (const char* key : {"query_prefix", "document_prefix", "query_length", "document_length",
                          "do_query_expansion", "skiplist_words"}) {
    if (!json.contains(key) || json[key].is_null()) continue;
    config->ignored.push_back(std::string("config_sentence_transformers.json: ") + key +
                              " has no effect, as in vLLM: texts become tokens as they are");
  }
  const auto prompts = json.find("prompts");
  if (prompts == json.end() || !prompts->is_object()) return;
  for (const auto& [name, prompt] : prompts->items()) {
    if (prompt.is_string()) config->prompts[name] = prompt.get<std::string>();
  }
}

// ---- config.json ----

std::string Architecture(const Json& json) {
  const auto list = json.find("architectures");
  const bool has_name =
      list != json.end() && list->is_array() && !list->empty() && (*list)[0].is_string();
  return has_name ? (*list)[0].get<std::string>() : std::string();
}

// ColBERT's, whose texts are compared token by token: vLLM's names and that of the first
// checkpoints.
bool IsLateInteraction(std::string_view architecture) {
  return architecture == "HF_ColBERT" || architecture.starts_with("ColBERT");
}

// Which pooling an architecture has without further files.
bool IsEncoder(std::string_view architecture) {
  return IsLateInteraction(architecture) || architecture.starts_with("Bert") ||
         architecture.starts_with("Roberta") || architecture.starts_with("XLMRoberta") ||
         architecture.starts_with("ModernBert");
}

Status ReadLateInteraction(const Json& json, PoolerConfig* config) {
  config->task = PoolingTask::kTokenEmbed;
  config->normalize = true;
  config->has_projection = config->dense.empty();
  if (!config->has_projection) return OkStatus();
  for (const char* key : {"colbert_dim", "dim", "projection_dim"}) {
    ASSIGN_OR_RETURN(config->projection_size, Size("config.json", json, key));
    if (config->projection_size == 0) continue;
    config->embedding_size = config->projection_size;
    break;
  }
  return OkStatus();
}

// A class for each token, such as the names in a text.
bool IsOfTokens(std::string_view architecture) {
  return architecture.ends_with("ForTokenClassification");
}

// What ModernBERT's classifier reads.
Status ReadClassifierPooling(const Json& json, PoolerConfig* config) {
  const std::string act = Text(json, "classifier_activation");
  if (!act.empty() && act != "gelu") return Wrong("config.json", "classifier_activation", "gelu");
  const std::string pooling = Text(json, "classifier_pooling");
  if (pooling.empty()) return OkStatus();
  if (pooling != "cls" && pooling != "mean") {
    return Wrong("config.json", "classifier_pooling", "cls or mean");
  }
  ASSIGN_OR_RETURN(config->type, TypeByName("config.json: classifier_pooling", pooling));
  return OkStatus();
}

Status ReadLabels(const Json& json, PoolerConfig* config) {
  size_t num_labels = 2;  // transformers' default
  const auto names = json.find("id2label");
  if (names != json.end() && names->is_object()) num_labels = names->size();
  ASSIGN_OR_RETURN(const int64_t given, Size("config.json", json, "num_labels"));
  if (given > 0) num_labels = static_cast<size_t>(given);
  if (num_labels < 1 || num_labels > kMaxLabels) {
    return Wrong("config.json", "id2label", "an object of labels");
  }
  for (size_t i = 0; i < num_labels; ++i) {
    const std::string id = std::to_string(i);
    const std::string name =
        names != json.end() && names->is_object() ? Text(*names, id.c_str()) : std::string();
    config->labels.push_back(name.empty() ? "LABEL_" + id : name);
  }
  return OkStatus();
}

// Where versions of sentence-transformers keep a cross encoder's activation, the newest first.
// own: config_sentence_transformers.json.
std::string ActivationName(const Json& json, const Json& own) {
  if (std::string name = Text(own, "activation_fn"); !name.empty()) return name;
  const auto nested = json.find("sentence_transformers");
  if (nested != json.end() && nested->is_object()) {
    if (std::string name = Text(*nested, "activation_fn"); !name.empty()) return name;
  }
  return Text(json, "sbert_ce_default_activation_function");
}

Status ReadActivation(const Json& json, const Json& own, PoolerConfig* config) {
  const std::string problem = Text(json, "problem_type");
  config->activation =
      config->labels.size() < 2 ? ScoreActivation::kSigmoid : ScoreActivation::kSoftmax;
  if (problem == "regression") config->activation = ScoreActivation::kNone;
  if (problem == "single_label_classification") config->activation = ScoreActivation::kSoftmax;
  if (problem == "multi_label_classification") config->activation = ScoreActivation::kSigmoid;
  if (!problem.empty()) return OkStatus();
  const std::string name = ActivationName(json, own);
  if (name.empty()) return OkStatus();
  if (name.ends_with(".Identity")) {
    config->activation = ScoreActivation::kNone;
  } else if (name.ends_with(".Sigmoid")) {
    config->activation = ScoreActivation::kSigmoid;
  } else if (name.ends_with(".Softmax")) {
    config->activation = ScoreActivation::kSoftmax;
  } else {
    return InvalidArgumentError("the classifier's activation " + name +
                                " must be torch.nn's Identity, Sigmoid or Softmax");
  }
  return OkStatus();
}

Status ReadClassifier(const Json& json, const Json& own, PoolerConfig* config) {
  config->task = PoolingTask::kClassify;
  config->normalize = false;
  const auto tokens = json.find("classifier_from_token");
  if (tokens != json.end() && !tokens->is_null()) {
    const bool is_pair = tokens->is_array() && tokens->size() == 2 && (*tokens)[0].is_string() &&
                         (*tokens)[1].is_string();
    if (!is_pair) return Wrong("config.json", "classifier_from_token", "two tokens");
    if (!IsTrue(json, "is_original_qwen3_reranker") &&
        Text(json, "method") != "from_2_way_softmax") {
      return InvalidArgumentError(
          "config.json: classifier_from_token is built for is_original_qwen3_reranker and the "
          "method from_2_way_softmax");
    }
    config->classifier_from_token = {(*tokens)[0].get<std::string>(),
                                     (*tokens)[1].get<std::string>()};
    config->labels = {"LABEL_0"};
    config->activation = ScoreActivation::kSigmoid;
    return OkStatus();
  }
  RETURN_IF_ERROR(ReadLabels(json, config));
  return ReadActivation(json, own, config);
}

Status ReadMatryoshka(const Json& json, PoolerConfig* config) {
  const auto list = json.find("matryoshka_dimensions");
  if (list != json.end() && !list->is_null()) {
    for (const Json& size : list->is_array() ? *list : Json::array({*list})) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() < 1) {
        return Wrong("config.json", "matryoshka_dimensions", "a list of sizes");
      }
      config->matryoshka_dimensions.push_back(size.get<int64_t>());
    }
  }
  config->is_matryoshka = IsTrue(json, "is_matryoshka") || !config->matryoshka_dimensions.empty();
  return OkStatus();
}

// ---- the flags ----

// The model's own task, or the same for each token.
Status SetTask(const Json& value, PoolerConfig* config) {
  const PoolingTask own = config->task;
  const PoolingTask token_wise =
      MakesVectors(own) ? PoolingTask::kTokenEmbed : PoolingTask::kTokenClassify;
  for (const PoolingTask task : {own, token_wise}) {
    if (value != std::string(TaskName(task))) continue;
    config->task = task;
    return OkStatus();
  }
  std::string tasks(TaskName(own));
  if (token_wise != own) tasks.append(" or ").append(TaskName(token_wise));
  return InvalidArgumentError("--pooler-config: task: " + value.dump() + " is not " + tasks +
                              ", which this model has");
}

Status ApplyFlag(const std::string& text, PoolerConfig* config) {
  if (text.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const Json json, ParseModelJson("--pooler-config", text));
  if (!json.is_object()) return InvalidArgumentError("--pooler-config must be a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (value.is_null()) continue;
    if (key == "pooling_type" || key == "seq_pooling_type") {
      if (!value.is_string()) return Wrong("--pooler-config", key.c_str(), "a text");
      ASSIGN_OR_RETURN(config->type, TypeByName("--pooler-config", value.get<std::string>()));
    } else if (key == "use_activation" && value.is_boolean()) {
      if (MakesVectors(config->task)) {
        config->normalize = value.get<bool>();
      } else if (value == false) {
        config->activation = ScoreActivation::kNone;
      }
    } else if (key == "task") {
      RETURN_IF_ERROR(SetTask(value, config));
    } else if (key != "tok_pooling_type" || value != "ALL") {
      return InvalidArgumentError("--pooler-config: " + key + ": " + value.dump() +
                                  " is not built; pooling_type, task and use_activation are");
    }
  }
  return OkStatus();
}

enum class Kind { kGenerate, kEmbed, kClassify };

Kind KindOf(const std::string& architecture, bool has_modules) {
  if (architecture.ends_with("ForSequenceClassification") || IsOfTokens(architecture)) {
    return Kind::kClassify;
  }
  if (has_modules || IsLateInteraction(architecture)) return Kind::kEmbed;
  const bool generates = architecture.ends_with("LMHeadModel") || !architecture.ends_with("Model");
  return generates ? Kind::kGenerate : Kind::kEmbed;
}

StatusOr<Kind> ChooseKind(const std::string& architecture, bool has_modules,
                          const PoolingFlags& flags) {
  const Kind own = KindOf(architecture, has_modules);
  const bool converts = flags.convert == "embed" || flags.convert == "classify";
  if (flags.runner == "generate") {
    if (converts) {
      return InvalidArgumentError("--convert " + flags.convert + ": is for --runner pooling");
    }
    // Files of sentence-transformers beside it do not change what the model could do.
    if (KindOf(architecture, /*has_modules=*/false) == Kind::kGenerate) return Kind::kGenerate;
    return InvalidArgumentError("--runner generate: " + architecture +
                                " makes vectors or scores, no text");
  }
  if (flags.convert == "embed") return Kind::kEmbed;
  if (flags.convert == "classify") return Kind::kClassify;
  if (flags.runner != "pooling") return own;
  if (own != Kind::kGenerate) return own;
  if (flags.convert == "none") {
    return InvalidArgumentError("--runner pooling: " + architecture +
                                " generates, and --convert none forbids to make an embedder of it");
  }
  return Kind::kEmbed;
}

}  // namespace

bool MakesVectors(PoolingTask task) {
  return task == PoolingTask::kEmbed || task == PoolingTask::kTokenEmbed;
}

bool IsTokenWise(PoolingTask task) {
  return task == PoolingTask::kTokenEmbed || task == PoolingTask::kTokenClassify;
}

std::string_view TaskName(PoolingTask task) {
  constexpr std::string_view kNames[] = {"embed", "classify", "token_embed", "token_classify"};
  return kNames[static_cast<size_t>(task)];
}

StatusOr<std::optional<PoolerConfig>> ReadPoolerConfig(const std::string& model,
                                                       const PoolingFlags& flags,
                                                       std::string_view hf_overrides) {
  std::error_code error;
  const bool has_folder = std::filesystem::is_directory(model, error);  // no GGUF file
  Json json, modules;
  if (has_folder) {
    ASSIGN_OR_RETURN(json, ReadModelJson(model + "/config.json"));
  }
  if (json.is_null()) json = Json::object();
  if (!json.is_object()) return InvalidArgumentError(model + "/config.json: not an object");
  if (!hf_overrides.empty()) {
    ASSIGN_OR_RETURN(const Json changes, ParseModelJson("--hf-overrides", hf_overrides));
    if (!changes.is_object()) return InvalidArgumentError("--hf-overrides: not an object");
    json.update(changes, /*merge_objects=*/true);
  }
  if (has_folder && flags.runner != "generate") {
    ASSIGN_OR_RETURN(modules, ReadModelJson(model + "/modules.json"));
  }
  const bool has_modules = !modules.is_null();
  const std::string architecture = Architecture(json);
  ASSIGN_OR_RETURN(const Kind kind, ChooseKind(architecture, has_modules, flags));
  if (kind == Kind::kGenerate) return std::optional<PoolerConfig>();
  PoolerConfig config;
  config.scores_pairs = IsEncoder(architecture);
  config.type = IsEncoder(architecture) ? PoolingType::kCls : PoolingType::kLast;
  ASSIGN_OR_RETURN(config.embedding_size, Size("config.json", json, "hidden_size"));
  Json own;
  if (has_folder) {
    ASSIGN_OR_RETURN(own, ReadModelJson(model + "/config_sentence_transformers.json"));
  }
  if (!own.is_object()) own = Json::object();
  if (has_modules) RETURN_IF_ERROR(ReadModules(model, modules, own, &config));
  ReadPrompts(own, &config);
  if (!config.dense.empty()) config.embedding_size = config.dense.back().out_features;
  if (kind == Kind::kClassify) {
    RETURN_IF_ERROR(ReadClassifier(json, own, &config));
    if (IsOfTokens(architecture)) config.task = PoolingTask::kTokenClassify;
    if (architecture.starts_with("ModernBert")) {
      RETURN_IF_ERROR(ReadClassifierPooling(json, &config));
    }
  } else {
    RETURN_IF_ERROR(ReadMatryoshka(json, &config));
    if (IsLateInteraction(architecture)) RETURN_IF_ERROR(ReadLateInteraction(json, &config));
  }
  RETURN_IF_ERROR(ApplyFlag(flags.pooler_config, &config));
  return std::optional<PoolerConfig>(std::move(config));
}

}  // namespace tandem
