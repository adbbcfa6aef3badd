// Files of vLLM's ExampleConnector: names and bytes as recorded from it (with TANDEM_GOLDENS all of
// kv_connectors/example_connector), what cannot be trusted in them, and what is left of a writer
// that was killed.

#include "engine_core/kv_transfer/prefix_folder.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/read_file.h"
#include "engine_core/kv_transfer/prefix_key.h"
#include "tests/support/dice.h"
#include "tests/support/environment.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr char kFile[] = "/model.layers.1.self_attn.attn.safetensors";

struct Shape {
  int num_heads = 1, head_dim = 2, block_size = 4, num_blocks = 8;
};

// Two layers in the reference backend's cache.
class Place {
 public:
  explicit Place(Shape shape = {}) : shape_(shape), backend_(MakeReferenceBackend()) {
    auto cache = backend_->AllocateKvCache({.num_layers = 2,
                                            .num_kv_heads = shape.num_heads,
                                            .head_dim = shape.head_dim,
                                            .block_size = shape.block_size,
                                            .num_blocks = shape.num_blocks});
    REQUIRE(cache.ok());
    cache_ = *std::move(cache);
  }
  KvRows rows() const { return KvRows::Of(*backend_, {{.cache = cache_.get()}}).value(); }
  std::unique_ptr<PrefixFolder> Open(const std::string& path) const {
    auto folder = PrefixFolder::Open(path, rows());
    REQUIRE(folder.ok());
    return *std::move(folder);
  }
  // Numbers as the recorded ones are.
  void Fill() const {
    const KvRows rows = this->rows();
    for (int layer = 0; layer < 2; ++layer) {
      for (int block = 0; block < shape_.num_blocks; ++block) {
        const std::vector<float> numbers = Numbers(layer, block);
        rows.Write(static_cast<size_t>(layer), BlockId{block},
                   reinterpret_cast<const std::byte*>(numbers.data()));
      }
    }
  }
  std::vector<float> Block(int layer, int block) const {
    std::vector<float> numbers(Numbers(layer, block).size());
    rows().Read(static_cast<size_t>(layer), BlockId{block},
                reinterpret_cast<std::byte*>(numbers.data()));
    return numbers;
  }
  std::vector<float> Numbers(int layer, int block) const {
    std::vector<float> numbers;
    for (int offset = 0; offset < shape_.block_size; ++offset) {
      for (int head = 0; head < shape_.num_heads; ++head) {
        for (int c = 0; c < 2 * shape_.head_dim; ++c) {
          const double cell = 64 * layer + 16 * block + 8 * head + offset + c / 4.0;
          numbers.push_back(static_cast<float>(std::fmod(cell, 128)));
        }
      }
    }
    return numbers;
  }

 private:
  Shape shape_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvCache> cache_;
};

std::vector<TokenId> Counting(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::string Bytes(const std::string& path) {
  const auto text = ReadFile(path, 1 << 20);
  REQUIRE(text.ok());
  return *text;
}

void Overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

size_t NumEntries(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST_CASE("prefix key: vLLM's name of a prompt's begin") {
  CHECK(PrefixKey(Counting(11, 8), {}) == "bdc393c47a5fcc07bcd57775b1f92f3f");
  CHECK(PrefixKey({}, {}) == "d41d8cd98f00b204e9800998ecf8427e");
  ExtraKeys images;
  images.items = {{.identifier = "img-a"}, {.identifier = "img-b"}};
  CHECK(PrefixKey(Counting(11, 8), images) == "3df8ed92d810641d662d276ef51a99bb");
  ExtraKeys salted;
  salted.cache_salt = "x";
  CHECK(PrefixKey(Counting(11, 8), salted) != PrefixKey(Counting(11, 8), {}));
}

TEST_CASE("prefix key: whole blocks of a prompt but for its last token") {
  CHECK(NumStoredTokens(11, 4) == 8);
  CHECK(NumStoredTokens(9, 4) == 8);
  CHECK(NumStoredTokens(8, 4) == 4);
  CHECK(NumStoredTokens(4, 4) == 0);
  CHECK(NumStoredTokens(0, 4) == 0);
}

TEST_CASE("token file: vLLM's header") {
  CHECK(TokenFileHeader({DType::kBf16, 8, 1, 4}) ==
        std::string("H\0\0\0\0\0\0\0", 8) +
            R"({"kv_cache":{"dtype":"BF16","shape":[8,1,8],"data_offsets":[0,128]}}    )");
}

TEST_CASE("prefix folder: the files that vLLM wrote, byte for byte") {
  const auto goldens = WholeGoldens();
  if (!goldens) {
    WARN("SKIPPED: TANDEM_GOLDENS is not set");
    return;
  }
  const std::string root = *goldens + "/kv_connectors/example_connector/";
  int num_compared = 0;
  for (const auto& one : nlohmann::json::parse(Bytes(root + "cases.json"))) {
    const std::string name = one["name"];
    INFO(name);
    ExtraKeys keys;
    for (const std::string hash : one["mm_hashes"]) keys.items.push_back({.identifier = hash});
    const std::vector<TokenId> prompt = one["prompt"];
    const int block_size = one["block_size"];
    const int num_tokens = NumStoredTokens(static_cast<int32_t>(prompt.size()), block_size);
    CHECK(num_tokens == one["stored_tokens"]);
    const std::string key =
        PrefixKey(std::span(prompt).first(static_cast<size_t>(num_tokens)), keys);
    CHECK(key == one["folder"]);
    if (one["dtype"] != "float32" || num_tokens == 0) continue;
    const Place place({one["kv_heads"], one["head_size"], block_size, 8});
    place.Fill();
    std::vector<BlockId> blocks;
    for (int i = 0; i < num_tokens / block_size; ++i) {
      blocks.push_back(BlockId{one["block_table"][static_cast<size_t>(i)].get<int>()});
    }
    const TempFolder ours;
    REQUIRE(place.Open(ours.path())->Store(key, blocks, false).ok());
    for (const auto& [file, facts] : one["files"].items()) {
      CHECK(Bytes(ours.path() + "/" + key + "/" + file) ==
            Bytes(root + name + "/" + key + "/" + file));
    }
    const Place other({one["kv_heads"], one["head_size"], block_size, 8});
    REQUIRE(other.Open(root + name)->Load(key, blocks, 0).ok());
    for (const BlockId block : blocks) {
      CHECK(other.Block(1, Index(block)) == place.Numbers(1, Index(block)));
    }
    ++num_compared;
  }
  CHECK(num_compared >= 4);
}

TEST_CASE("prefix folder: a prefix comes back into other blocks, from any block on") {
  const Place from, to;
  from.Fill();
  const TempFolder folder;
  const auto shared = from.Open(folder.path() + "/a/b");
  CHECK_FALSE(shared->Has("k"));
  const std::vector<BlockId> blocks = {BlockId{5}, BlockId{2}, BlockId{7}};
  REQUIRE(shared->Store("k", blocks, false).ok());
  CHECK(shared->Has("k"));
  CHECK(NumEntries(folder.path() + "/a/b") == 1);  // nothing else is left
  const std::vector<BlockId> places = {BlockId{1}, BlockId{6}, BlockId{3}};
  REQUIRE(to.Open(folder.path() + "/a/b")->Load("k", places, 1).ok());
  CHECK(to.Block(0, 1) == std::vector<float>(16, 0.0f));
  CHECK(to.Block(0, 6) == from.Numbers(0, 2));
  CHECK(to.Block(1, 3) == from.Numbers(1, 7));
}

TEST_CASE("prefix folder: what is there stays, unless it is to be replaced") {
  const Place place;
  place.Fill();
  const TempFolder folder;
  const auto shared = place.Open(folder.path());
  const std::vector<BlockId> blocks = {BlockId{1}};
  REQUIRE(shared->Store("k", blocks, false).ok());
  const std::string file = folder.path() + "/k" + kFile, good = Bytes(file);
  Overwrite(file, "x");
  REQUIRE(shared->Store("k", blocks, false).ok());
  CHECK(Bytes(file) == "x");
  REQUIRE(shared->Store("k", blocks, true).ok());
  CHECK(Bytes(file) == good);
  CHECK(NumEntries(folder.path()) == 1);
  fs::remove_all(folder.path() + "/k");
  REQUIRE(shared->Store("k", blocks, true).ok());
  CHECK(Bytes(file) == good);
}

TEST_CASE("prefix folder: what cannot be written leaves nothing") {
  const Place place;
  const TempFolder folder;
  const auto shared = place.Open(folder.path() + "/gone");
  fs::remove_all(folder.path() + "/gone");
  const std::vector<BlockId> blocks = {BlockId{1}};
  CHECK_FALSE(shared->Store("k", blocks, false).ok());
  Overwrite(folder.path() + "/gone", "a file");
  CHECK_FALSE(shared->Store("k", blocks, false).ok());
  CHECK_FALSE(PrefixFolder::Open(folder.path() + "/gone", place.rows()).ok());
}

TEST_CASE("prefix folder: what a killed writer has left is removed, and nobody else's") {
  const Place place;
  const TempFolder folder;
  const std::string left = folder.path() + "/.part-1", written = folder.path() + "/.part-2";
  for (const std::string& part : {left, written}) {
    fs::create_directory(part);
    Overwrite(part + kFile, "half");
  }
  fs::create_directory(folder.path() + "/another");
  const UniqueFd writer(open(written.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(flock(writer.get(), LOCK_EX | LOCK_NB) == 0);
  CHECK_FALSE(place.Open(folder.path())->Has(".part-1"));
  CHECK_FALSE(fs::exists(left));
  CHECK(fs::exists(written + kFile));
  CHECK(fs::exists(folder.path() + "/another"));
}

TEST_CASE("prefix folder: a writer that is killed at any time leaves whole prefixes alone") {
  const Place place;
  place.Fill();
  const TempFolder folder;
  const auto shared = place.Open(folder.path());
  const std::vector<BlockId> blocks = {BlockId{1}, BlockId{2}};
  for (int round = 0; round < 8; ++round) {
    const std::string prefix = std::to_string(round) + "-";
    const pid_t writer = fork();
    if (writer == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (int i = 0;; ++i) {
        if (!shared->Store(prefix + std::to_string(i), blocks, false).ok()) _exit(1);
      }
    }
    while (!shared->Has(prefix + std::to_string(round))) {
      REQUIRE(waitpid(writer, nullptr, WNOHANG) == 0);  // it writes
      sched_yield();
    }
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    (void)place.Open(folder.path());
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      const std::string key = entry.path().filename().string();
      INFO(key);
      CHECK_FALSE(key.starts_with("."));
      const Place other;
      CHECK(other.Open(folder.path())->Load(key, blocks, 0).ok());
    }
  }
}

TEST_CASE("prefix folder: a file that is cut or lies is not loaded") {
  const Place place;
  place.Fill();
  const TempFolder folder;
  const auto shared = place.Open(folder.path());
  const std::vector<BlockId> blocks = {BlockId{1}, BlockId{2}};
  REQUIRE(shared->Store("k", blocks, false).ok());
  const std::string file = folder.path() + "/k" + kFile, good = Bytes(file);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return bytes;
  };
  const auto refused = [&](const std::string& bytes) {
    Overwrite(file, bytes);
    return !shared->Load("k", blocks, 0).ok();
  };
  for (size_t size = 0; size < good.size(); ++size) {
    INFO(size << " bytes of " << good.size());
    CHECK(refused(good.substr(0, size)));
  }
  CHECK(refused(replaced("F32", "I32")));
  CHECK(refused(replaced("[8,1,4]", "[4,2,4]")));
  CHECK(refused(replaced("[8,1,4]", "[8,1,8]")));
  CHECK(refused(replaced("[0,128]", "[1,129]")));
  CHECK(refused(replaced("[0,128]", "[0,127]")));
  CHECK(refused(replaced("[0,128]", "[-1,27]")));
  CHECK(refused(replaced("[0,128]", "[0,1e9]")));
  CHECK(refused(replaced("kv_cache", "kv_cachf")));
  CHECK(refused(good + "x"));
  CHECK(refused(static_cast<char>(good[0] - 1) + good.substr(1)));  // of its header's length
  CHECK(refused(std::string(8, '\xff') + good.substr(8)));
  CHECK_FALSE(refused(good));
  Overwrite(file, good.substr(0, good.size() - 1));
  CHECK_THAT(shared->Load("k", blocks, 0).message(), Contains(kFile));
}

TEST_CASE("prefix folder: random damage of a header is refused or harmless") {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 11);
  INFO("TANDEM_SEED=" << seed);
  Dice dice(seed);
  const Place place;
  place.Fill();
  const TempFolder folder;
  const auto shared = place.Open(folder.path());
  const std::vector<BlockId> blocks = {BlockId{1}};
  REQUIRE(shared->Store("k", blocks, false).ok());
  const std::string file = folder.path() + "/k" + kFile, good = Bytes(file);
  const auto header = static_cast<int32_t>(good.size() - 64);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good;
    for (int n = dice.Roll(1, 3); n > 0; --n) {
      bytes[static_cast<size_t>(dice.Roll(0, header - 1))] = static_cast<char>(dice.Roll(0, 255));
    }
    Overwrite(file, bytes);
    const Place other;
    if (!other.Open(folder.path())->Load("k", blocks, 0).ok()) continue;
    CHECK(other.Block(1, 1) == place.Numbers(1, 1));
  }
}

TEST_CASE("prefix folder: a pipe, a folder and a missing file hold nobody up") {
  const Place place;
  const TempFolder folder;
  const auto shared = place.Open(folder.path());
  const std::vector<BlockId> blocks = {BlockId{1}};
  REQUIRE(shared->Store("k", blocks, false).ok());
  const std::string file = folder.path() + "/k" + kFile;
  fs::remove(file);
  CHECK(shared->Load("k", blocks, 0).code() == StatusCode::kNotFound);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK_THAT(shared->Load("k", blocks, 0).message(), Contains("regular file"));
  fs::remove(file);
  fs::create_directory(file);
  CHECK_FALSE(shared->Load("k", blocks, 0).ok());
}

}  // namespace
}  // namespace tandem
