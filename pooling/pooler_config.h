#pragma once

// How a model turns the hidden states of a text into a vector or scores, read from the files of its
// folder: config.json, and what sentence-transformers writes beside it (modules.json,
// 1_Pooling/config.json, sentence_bert_config.json). Both processes read it: the engine core
// computes by it, the frontend knows from it which routes there are.
// Thread: any; values. Failure: INVALID_ARGUMENT with the file and the key.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

// What a request of the model results in: one vector or one row of scores, or those of each token.
enum class PoolingTask { kEmbed, kClassify, kTokenEmbed, kTokenClassify };

bool MakesVectors(PoolingTask task);  // else scores
bool IsTokenWise(PoolingTask task);

// How hidden states become one: the last token's, the first one's; of all tokens the mean, the
// largest numbers, the sum over the root of their count, or the mean with their places as weights.
enum class PoolingType { kLast, kCls, kMean, kMax, kMeanSqrtLen, kWeightedMean };

// From the scores of a head to what a client gets.
enum class ScoreActivation { kNone, kSigmoid, kSoftmax };

// What follows a matrix; kGelu: the exact one.
enum class DenseCurve { kNone, kTanh, kRelu, kGelu, kSilu, kSigmoid };

// A matrix after the pooling, stored in a folder of its own.
struct PooledDense {
  std::string folder;  // below the model's
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool has_bias = true;
  DenseCurve curve = DenseCurve::kNone;
  // Its input is added after that: as it is, or times a matrix "residual" where the sizes differ.
  bool has_residual = false;
  bool has_unit_input = false;  // its input is brought to length 1 before all of that
};

struct PoolerConfig {
  PoolingTask task = PoolingTask::kEmbed;
  PoolingType type = PoolingType::kLast;
  std::vector<PooledDense> dense;
  bool normalize = true;  // embeddings have length 1 unless the request says otherwise
  // Of ColBERT's classes without `dense`: a matrix of the checkpoint, "linear", after the states.
  bool has_projection = false;
  int64_t projection_size = 0;  // its rows; 0: those that it has
  // Columns of an embedding, after these; of a projection that only the checkpoint knows the most
  // that it may have. 0: not known.
  int64_t embedding_size = 0;
  int64_t max_seq_length = 0;                  // tokens of a text; 0: the model's own limit
  bool lowercases = false;                     // texts are in lower case before they become tokens
  bool is_matryoshka = false;                  // requests may choose fewer dimensions
  std::vector<int64_t> matryoshka_dimensions;  // those that they may choose; empty: any
  // Of a classifier: by number. One label: a score, as rerankers have.
  std::vector<std::string> labels;
  ScoreActivation activation = ScoreActivation::kSigmoid;
  // Two texts to be scored are tokenized as a pair; else, by decoders, as one text.
  bool scores_pairs = false;
  // sentence-transformers' prompts by name: what is put before a text.
  std::map<std::string, std::string> prompts;
  // The head is made of rows of the embedding table: the first of the two tokens is subtracted.
  std::vector<std::string> classifier_from_token;
  // Keys that would change vectors and have no effect: a line for each, for the log at start.
  std::vector<std::string> ignored;

  // Results are of more tokens than the last one, so all of a prompt's are computed.
  bool needs_all_states() const { return type != PoolingType::kLast || IsTokenWise(task); }
  // Of a result or of its rows; 0: not known.
  int64_t num_columns() const {
    return MakesVectors(task) ? embedding_size : static_cast<int64_t>(labels.size());
  }
};

// The flags that decide.
struct PoolingFlags {
  std::string runner = "auto";   // auto, generate or pooling
  std::string convert = "auto";  // auto, none, embed or classify
  std::string pooler_config;     // JSON object, empty: what the files say
};

// The pooler of a model folder or GGUF file; nullopt: the model generates.
StatusOr<std::optional<PoolerConfig>> ReadPoolerConfig(const std::string& model,
                                                       const PoolingFlags& flags,
                                                       std::string_view hf_overrides = {});

// "embed", "token_classify", as on the wire.
std::string_view TaskName(PoolingTask task);

}  // namespace tandem
