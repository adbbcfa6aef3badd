#include "pooling/pooler_config.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

class Folder {
 public:
  explicit Folder(const std::map<std::string, std::string>& files) {
    for (const auto& [name, text] : files) {
      const std::filesystem::path path = std::filesystem::path(folder_.path()) / name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << text;
    }
  }
  StatusOr<std::optional<PoolerConfig>> Read(const PoolingFlags& flags = {},
                                             std::string_view overrides = {}) const {
    return ReadPoolerConfig(folder_.path(), flags, overrides);
  }

 private:
  TempFolder folder_;
};

std::string Architecture(const std::string& name) {
  return R"({"architectures": [")" + name + R"("], "hidden_size": 64})";
}

PoolingFlags Flags(std::string runner, std::string convert, std::string pooler_config) {
  return {std::move(runner), std::move(convert), std::move(pooler_config)};
}

TEST_CASE("which models pool, by their names and the flags") {
  const Folder decoder({{"config.json", Architecture("LlamaForCausalLM")}});
  CHECK_FALSE(decoder.Read().value());
  const auto embeds = decoder.Read(Flags("pooling", "auto", "")).value();
  REQUIRE(embeds);
  CHECK(embeds->task == PoolingTask::kEmbed);
  CHECK(embeds->type == PoolingType::kLast);
  CHECK(embeds->normalize);
  CHECK(embeds->embedding_size == 64);
  CHECK(decoder.Read(Flags("auto", "embed", "")).value());
  CHECK_FALSE(decoder.Read(Flags("pooling", "none", "")).ok());
  CHECK_FALSE(decoder.Read(Flags("generate", "embed", "")).ok());
  const std::string infinite =
      R"({"architectures": ["Mamba2ForCausalLM"], "time_step_limit": [0.0, Infinity]})";
  CHECK_FALSE(Folder({{"config.json", infinite}}).Read().value());
  CHECK_FALSE(Folder({{"config.json", Architecture("GPT2LMHeadModel")}}).Read().value());
  const Folder encoder({{"config.json", Architecture("BertModel")}});
  CHECK(encoder.Read().value()->type == PoolingType::kCls);
  CHECK_FALSE(encoder.Read(Flags("generate", "auto", "")).ok());
  const Folder classifier({{"config.json", Architecture("Qwen3ForSequenceClassification")}});
  CHECK(classifier.Read().value()->task == PoolingTask::kClassify);
  CHECK(classifier.Read().value()->labels == std::vector<std::string>{"LABEL_0", "LABEL_1"});
}

TEST_CASE("a model's task may be that of each token") {
  using Catch::Matchers::Contains;
  const Folder encoder({{"config.json", Architecture("BertModel")}});
  const Folder classifier({{"config.json", Architecture("BertForSequenceClassification")}});
  const auto vectors =
      encoder.Read(Flags("auto", "auto", R"({"task": "token_embed", "use_activation": false})"));
  REQUIRE(vectors.ok());
  CHECK((*vectors)->task == PoolingTask::kTokenEmbed);
  CHECK_FALSE((*vectors)->normalize);
  CHECK((*vectors)->num_columns() == 64);
  CHECK((*vectors)->needs_all_states());
  const auto scores = classifier.Read(
      Flags("auto", "auto", R"({"task": "token_classify", "tok_pooling_type": "ALL"})"));
  REQUIRE(scores.ok());
  CHECK((*scores)->task == PoolingTask::kTokenClassify);
  CHECK((*scores)->num_columns() == 2);
  CHECK(encoder.Read(Flags("auto", "auto", R"({"task": "embed"})")).ok());
  for (const char* task : {"classify", "token_classify", "plugin"}) {
    const auto other =
        encoder.Read(Flags("auto", "auto", R"({"task": ")" + std::string(task) + "\"}"));
    CHECK_THAT(other.status().message(), Contains("is not embed or token_embed"));
  }
  CHECK_FALSE(classifier.Read(Flags("auto", "auto", R"({"task": "token_embed"})")).ok());
  CHECK_FALSE(encoder.Read(Flags("auto", "auto", R"({"tok_pooling_type": "STEP"})")).ok());
}

TEST_CASE("classifiers of tokens, and what ModernBERT's reads") {
  using Catch::Matchers::Contains;
  const Folder names({{"config.json", Architecture("BertForTokenClassification")}});
  CHECK(names.Read().value()->task == PoolingTask::kTokenClassify);
  const auto whole = names.Read(Flags("auto", "auto", R"({"task": "classify"})"));
  CHECK_THAT(whole.status().message(), Contains("is not token_classify, which"));
  const Folder modern({{"config.json", Architecture("ModernBertForSequenceClassification")}});
  CHECK(modern.Read().value()->type == PoolingType::kCls);
  CHECK(modern.Read().value()->scores_pairs);
  CHECK(modern.Read({}, R"({"classifier_pooling": "mean"})").value()->type == PoolingType::kMean);
  CHECK_FALSE(modern.Read({}, R"({"classifier_pooling": "max"})").ok());
  CHECK_FALSE(modern.Read({}, R"({"classifier_activation": "relu"})").ok());
}

TEST_CASE("a Normalize is of what stands before it") {
  const auto modules = [](const char* third, const char* fourth) {
    const std::string row = R"(", "type": "sentence_transformers.models.)";
    return R"([{"path": "1_Pooling)" + row + R"(Pooling"}, {"path": "2_Dense)" + row + third +
           R"("}, {"path": "2_Dense)" + row + fourth + "\"}]";
  };
  for (const bool is_last : {false, true}) {
    const Folder folder(
        {{"config.json", Architecture("Qwen3ForCausalLM")},
         {"modules.json", is_last ? modules("Dense", "Normalize") : modules("Normalize", "Dense")},
         {"1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})"},
         {"2_Dense/config.json", R"({"in_features": 64, "out_features": 8})"}});
    const auto config = folder.Read().value();
    REQUIRE(config);
    CHECK(config->normalize == is_last);
    REQUIRE(config->dense.size() == 1);
    CHECK(config->dense[0].has_unit_input == !is_last);
  }
}

TEST_CASE("files of sentence-transformers") {
  const std::string modules = R"([
      {"path": "", "type": "sentence_transformers.models.Transformer"},
      {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
      {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])";
  const std::string dense = R"({"in_features": 64, "out_features": 8, "bias": false,
      "activation_function": "torch.nn.modules.activation.Tanh"})";
  const Folder folder({{"config.json", Architecture("Qwen3ForCausalLM")},
                       {"modules.json", modules},
                       {"1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})"},
                       {"2_Dense/config.json", dense},
                       {"sentence_bert_config.json", R"({"max_seq_length": 77})"},
                       {"config_sentence_transformers.json", R"({"prompts": {"query": "Q: "}})"}});
  const auto config = folder.Read().value();
  REQUIRE(config);
  CHECK(config->type == PoolingType::kMean);
  CHECK_FALSE(config->normalize);
  REQUIRE(config->dense.size() == 1);
  CHECK(config->dense[0].curve == DenseCurve::kTanh);
  CHECK(config->embedding_size == 8);
  CHECK(config->max_seq_length == 77);
  CHECK_FALSE(config->lowercases);
  CHECK(config->ignored.empty());
  CHECK(config->prompts.at("query") == "Q: ");
  CHECK_FALSE(config->is_matryoshka);
  CHECK(folder.Read({}, R"({"is_matryoshka": true})").value()->is_matryoshka);
  CHECK(folder.Read(Flags("auto", "auto", R"({"pooling_type": "CLS"})")).value()->type ==
        PoolingType::kCls);
  CHECK(folder.Read(Flags("auto", "auto", R"({"pooling_type": "MAX"})")).value()->type ==
        PoolingType::kMax);
  CHECK_FALSE(folder.Read(Flags("auto", "auto", R"({"pooling_type": "STEP"})")).ok());
  CHECK_FALSE(folder.Read(Flags("auto", "auto", "[]")).ok());
}

TEST_CASE("texts in lower case are read of a transformer, and keys without an effect are named") {
  const std::string modules = R"([{"path": "", "type": "models.Transformer"},
                                  {"path": "1_Pooling", "type": "models.Pooling"}])";
  const Folder folder(
      {{"config.json", Architecture("BertModel")},
       {"modules.json", modules},
       {"1_Pooling/config.json", R"({"pooling_mode_cls_token": true, "include_prompt": false})"},
       {"config_sentence_transformers.json", R"({"default_prompt_name": "query"})"},
       {"sentence_bert_config.json", R"({"do_lower_case": true})"}});
  const auto config = folder.Read().value();
  REQUIRE(config);
  CHECK(config->lowercases);
  CHECK(config->max_seq_length == 0);
  REQUIRE(config->ignored.size() == 2);
  CHECK_THAT(config->ignored[1], Catch::Matchers::Contains("default_prompt_name query"));
  CHECK(config->ignored[0].ends_with(
      "1_Pooling/config.json: include_prompt false has no effect: a prompt's tokens are pooled"));
}

TEST_CASE("all poolings of sentence-transformers, by their flags and their names") {
  const auto read = [](const std::string& pooling) {
    const Folder folder({{"config.json", Architecture("BertModel")},
                         {"modules.json", R"([{"path": "1_Pooling", "type": "x.Pooling"}])"},
                         {"1_Pooling/config.json", pooling}});
    return folder.Read();
  };
  for (const auto& [flag, name, type] :
       {std::tuple{"cls_token", "cls", PoolingType::kCls},
        std::tuple{"mean_tokens", "mean", PoolingType::kMean},
        std::tuple{"lasttoken", "lasttoken", PoolingType::kLast},
        std::tuple{"max_tokens", "max", PoolingType::kMax},
        std::tuple{"mean_sqrt_len_tokens", "mean_sqrt_len_tokens", PoolingType::kMeanSqrtLen},
        std::tuple{"weightedmean_tokens", "weightedmean", PoolingType::kWeightedMean}}) {
    CAPTURE(flag);
    const std::string quoted = '"' + std::string(name) + '"';
    CHECK(read(R"({"pooling_mode_)" + std::string(flag) + "\": true}").value()->type == type);
    CHECK(read(R"({"pooling_mode": )" + quoted + "}").value()->type == type);
    CHECK(read(R"({"pooling_mode": [)" + quoted + "]}").value()->type == type);
  }
  using Catch::Matchers::Contains;
  CHECK_THAT(read(R"({"pooling_mode": ["cls", "mean"]})").status().message(),
             Contains("1_Pooling") && Contains("several poolings"));
  CHECK_THAT(read(R"({"pooling_mode": "attention"})").status().message(),
             Contains("the pooling attention must be cls, mean,"));
  CHECK_THAT(read(R"({"pooling_mode": [3]})").status().message(), Contains("pooling_mode"));
}

TEST_CASE("modules without a pooling make a vector for each token, as pylate's do") {
  const std::map<std::string, std::string> files = {
      {"config.json", Architecture("BertModel")},
      {"modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                           {"path": "1_Dense", "type": "pylate.models.Dense.Dense"}])"},
      {"1_Dense/config.json", R"({"in_features": 64, "out_features": 16, "bias": false,
          "activation_function": "torch.nn.modules.linear.Identity", "use_residual": false})"},
      {"config_sentence_transformers.json",
       R"({"query_prefix": "[Q] ", "query_length": 32, "skiplist_words": null})"}};
  const auto config = Folder(files).Read().value();
  CHECK(config->task == PoolingTask::kTokenEmbed);
  CHECK(config->normalize);
  CHECK(config->num_columns() == 16);
  REQUIRE(config->ignored.size() == 2);
  CHECK_THAT(config->ignored[0], Catch::Matchers::Contains("query_prefix has no effect"));
}

TEST_CASE("dense layers: their activations, and whether the input is added") {
  const auto read = [](const std::string& more) {
    return Folder(
               {{"config.json", Architecture("BertModel")},
                {"modules.json", R"([{"path": "1_Dense", "type": "x.Dense"}])"},
                {"1_Dense/config.json", R"({"in_features": 64, "out_features": 16)" + more + "}"}})
        .Read();
  };
  for (const auto& [name, curve] : {std::pair{"linear.Identity", DenseCurve::kNone},
                                    std::pair{"activation.Tanh", DenseCurve::kTanh},
                                    std::pair{"activation.ReLU", DenseCurve::kRelu},
                                    std::pair{"activation.GELU", DenseCurve::kGelu},
                                    std::pair{"activation.SiLU", DenseCurve::kSilu},
                                    std::pair{"activation.Sigmoid", DenseCurve::kSigmoid}}) {
    CAPTURE(name);
    const auto config =
        read(R"(, "activation_function": "torch.nn.modules.)" + std::string(name) + "\"");
    CHECK(config.value()->dense[0].curve == curve);
    CHECK_FALSE(config.value()->dense[0].has_residual);
  }
  CHECK(read(R"(, "use_residual": true)").value()->dense[0].has_residual);
  CHECK_THAT(
      read(R"(, "activation_function": "torch.nn.modules.activation.ELU")").status().message(),
      Catch::Matchers::Contains("1_Dense/config.json: activation_function must be"));
}

TEST_CASE("a MultiVectorEncoder has vectors of length 1 where it has a module for that") {
  const auto read = [](const std::string& more) {
    const Folder folder(
        {{"config.json", Architecture("BertModel")},
         {"modules.json", R"([{"path": "", "type": "sentence_transformers.Transformer"},
                              {"path": "1_Mask", "type": "x.multi_vector_mask.MultiVectorMask"})" +
                              more + "]"},
         {"1_Mask/config.json", R"({"skiplist_words": ["!"], "skiplist_tasks": ["document"],
                                    "keep_only_token_ids": null})"},
         {"config_sentence_transformers.json", R"({"model_type": "MultiVectorEncoder"})"}});
    return folder.Read().value();
  };
  const auto config = read("");
  REQUIRE(config);
  CHECK(config->task == PoolingTask::kTokenEmbed);
  CHECK_FALSE(config->normalize);
  REQUIRE(config->ignored.size() == 1);
  CHECK_THAT(config->ignored[0],
             Catch::Matchers::Contains("1_Mask/config.json: skiplist_words has no effect"));
  CHECK(read(R"(, {"path": "2_Normalize", "type": "x.normalize.Normalize"})")->normalize);
}

TEST_CASE("ColBERT's classes make a vector for each token, by a matrix of the checkpoint") {
  const auto read = [](const std::string& name, const std::string& more) {
    return Folder({{"config.json",
                    R"({"hidden_size": 64, "architectures": [")" + name + "\"]" + more + "}"}})
        .Read();
  };
  for (const char* name : {"HF_ColBERT", "ColBERTModernBertModel", "ColBERTJinaRobertaModel"}) {
    CAPTURE(name);
    const auto config = read(name, "").value();
    REQUIRE(config);
    CHECK(config->task == PoolingTask::kTokenEmbed);
    CHECK(config->normalize);
    CHECK(config->scores_pairs);
    CHECK(config->has_projection);
    CHECK(config->projection_size == 0);
    CHECK(config->num_columns() == 64);
    CHECK(read(name, R"(, "dim": 16)").value()->num_columns() == 16);
    CHECK(read(name, R"(, "projection_dim": 16, "colbert_dim": 8)").value()->projection_size == 8);
  }
  CHECK_THAT(read("HF_ColBERT", R"(, "dim": -1)").status().message(),
             Catch::Matchers::Contains("dim must be a size"));
  // In a folder of its own.
  const Folder apart({{"config.json", Architecture("ColBERTModernBertModel")},
                      {"modules.json", R"([{"path": "1_Dense", "type": "pylate.models.Dense"}])"},
                      {"1_Dense/config.json", R"({"in_features": 64, "out_features": 16,
                          "activation_function": "torch.nn.modules.linear.Identity"})"}});
  CHECK_FALSE(apart.Read().value()->has_projection);
  CHECK(apart.Read().value()->num_columns() == 16);
}

TEST_CASE("what is not understood is an error that names the file") {
  const auto message = [](const std::string& modules, const std::string& pooling) {
    const Folder folder({{"config.json", Architecture("BertModel")},
                         {"modules.json", modules},
                         {"1_Pooling/config.json", pooling}});
    const auto config = folder.Read();
    return config.ok() ? std::string("ok") : config.status().message();
  };
  const std::string good = R"([{"path": "1_Pooling", "type": "x.Pooling"}])";
  using Catch::Matchers::Contains;
  CHECK_THAT(message(good, R"({"pooling_mode_min_tokens": true})"), Contains("min_tokens"));
  CHECK_THAT(message(good, R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})"),
             Contains("1_Pooling"));
  CHECK_THAT(message(good, "{}"), Contains("names no pooling"));
  CHECK_THAT(message(good, "no json"), Contains("is not JSON"));
  CHECK_THAT(message("{}", "{}"), Contains("modules.json"));
  CHECK_THAT(message(R"([{"path": "../x", "type": "x.Pooling"}])", "{}"), Contains("path"));
  CHECK_THAT(message(R"([{"path": "", "type": "x.LSTM"}])", "{}"), Contains("type"));
  CHECK_THAT(message("no json", "{}"), Contains("modules.json is not JSON"));
}

TEST_CASE("a broken file is an error where it is needed") {
  using Catch::Matchers::Contains;
  const std::map<std::string, std::string> files = {
      {"config.json", Architecture("LlamaForCausalLM")}, {"modules.json", "no json"}};
  CHECK_THAT(Folder(files).Read().status().message(), Contains("modules.json is not JSON"));
  CHECK_FALSE(Folder(files).Read(Flags("generate", "auto", "")).value());
  const Folder prompts(
      {{"config.json", Architecture("BertModel")}, {"config_sentence_transformers.json", "{"}});
  CHECK_THAT(prompts.Read().status().message(),
             Contains("config_sentence_transformers.json is not JSON"));
}

TEST_CASE("a model that is one file has no files beside it") {
  const TempFolder folder;
  const std::string model = folder.path() + "/model.gguf";
  std::ofstream(model) << "GGUF";
  CHECK_FALSE(ReadPoolerConfig(model, {}, Architecture("LlamaForCausalLM")).value());
  const auto embeds =
      ReadPoolerConfig(model, Flags("pooling", "auto", ""), Architecture("LlamaForCausalLM"));
  REQUIRE(embeds.value());
  CHECK(embeds.value()->prompts.empty());
}

TEST_CASE("activations of classifiers") {
  const auto activation = [](const std::string& more, const std::string& own = "{}") {
    const Folder folder({{"config.json", R"({"architectures": ["BertForSequenceClassification"],
        "hidden_size": 4, )" + more + "}"},
                         {"config_sentence_transformers.json", own}});
    return folder.Read().value()->activation;
  };
  CHECK(activation(R"("id2label": {"0": "a"})") == ScoreActivation::kSigmoid);
  CHECK(activation(R"("id2label": {"0": "a", "1": "b"})") == ScoreActivation::kSoftmax);
  CHECK(activation(R"("id2label": {"0": "a"}, "problem_type": "regression")") ==
        ScoreActivation::kNone);
  CHECK(activation(R"("id2label": {"0": "a", "1": "b"},
                      "problem_type": "multi_label_classification")") == ScoreActivation::kSigmoid);
  CHECK(activation(
            R"("sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"})") ==
        ScoreActivation::kNone);
  // The newest file counts, then the newest key.
  const std::string by_old_key =
      R"("sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity")";
  const std::string sigmoid =
      R"({"activation_fn": "torch.nn.modules.activation.Sigmoid", "model_type": "CrossEncoder"})";
  CHECK(activation(by_old_key + R"(, "sentence_transformers": {"version": "4.1.0"})") ==
        ScoreActivation::kNone);
  CHECK(activation(by_old_key + R"(, "sentence_transformers": )" + sigmoid) ==
        ScoreActivation::kSigmoid);
  CHECK(activation(by_old_key, sigmoid) == ScoreActivation::kSigmoid);
  CHECK(activation(by_old_key, R"({"activation_fn": null})") == ScoreActivation::kNone);
  CHECK(activation(R"("problem_type": "regression")", sigmoid) == ScoreActivation::kNone);
}

}  // namespace
}  // namespace tandem
