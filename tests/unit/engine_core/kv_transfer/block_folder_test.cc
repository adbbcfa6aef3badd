#include "engine_core/kv_transfer/block_folder.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytes = 1000;

BlockHash HashOf(int number) {
  BlockHash hash;
  for (size_t i = 0; i < hash.bytes.size(); ++i) hash.bytes[i] = static_cast<uint8_t>(number + i);
  return hash;
}

std::vector<std::byte> BlockOf(int number) {
  std::vector<std::byte> block(kBytes);
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(number * 31 + i);
  return block;
}

std::unique_ptr<BlockFolder> Open(const TempFolder& root, const std::string& facts = "{}") {
  auto folder = BlockFolder::Open(BlockFolderBase(root.path(), "m", facts), facts, kBytes);
  REQUIRE(folder.ok());
  return *std::move(folder);
}

StatusCode Read(const BlockFolder& folder, int number) {
  std::vector<std::byte> block(kBytes);
  const Status status = folder.Read(HashOf(number), block);
  if (status.ok()) CHECK(block == BlockOf(number));
  return status.code();
}

// vLLM 0.33's FileMapper: the first of goldens/kv_connectors/fs_tier.json.
TEST_CASE("block folder: names are those of vLLM's fs tier") {
  const std::string facts =
      R"({"blocks_per_file":1,"dcp_size":1,"dtype":"bfloat16","inference_engine":"vllm",)"
      R"("kv_cache_groups":[{"layer_names":["model.layers.0.self_attn.attn",)"
      R"("model.layers.1.self_attn.attn"],"tokens_per_block":16}],)"
      R"("model_name":"meta-llama/Llama-3.1-8B","pcp_size":1,"pp_size":1,"tokens_per_hash":16,)"
      R"("tp_size":1})";
  CHECK(BlockFolderBase("/kv", "meta-llama/Llama-3.1-8B", facts) ==
        "/kv/meta-llama_Llama-3.1-8B_577885e0a87b");
  const TempFolder root;
  const auto folder = Open(root);
  CHECK(folder->FileOf(HashOf(0)) ==
        folder->path() +
            "/000/10_g0/000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f.bin");
  CHECK(folder->path() == BlockFolderBase(root.path(), "m", "{}") + "_r0");
  CHECK(fs::exists(BlockFolderBase(root.path(), "m", "{}") + "/config.json"));
}

TEST_CASE("block folder: what is written is read, and found by another process") {
  const TempFolder root;
  {
    const auto folder = Open(root);
    CHECK(Read(*folder, 1) == StatusCode::kNotFound);
    for (const int number : {1, 2}) {
      REQUIRE(folder->Write(HashOf(number), BlockOf(number)).ok());
      CHECK(Read(*folder, number) == StatusCode::kOk);
    }
    folder->Remove(HashOf(2));
    CHECK(Read(*folder, 2) == StatusCode::kNotFound);
  }
  CHECK(Open(root)->Scan() == std::vector<BlockHash>{HashOf(1)});
  CHECK(Open(root, "other facts")->Scan().empty());
}

TEST_CASE("block folder: other users cannot read blocks, whatever the umask") {
  const TempFolder root;
  const auto folder = Open(root);
  const mode_t before = umask(0);
  REQUIRE(folder->Write(HashOf(1), BlockOf(1)).ok());
  umask(before);
  struct stat info {};
  REQUIRE(stat(folder->FileOf(HashOf(1)).c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("block folder: an engine has its own, and the next one inherits it") {
  const TempFolder root;
  auto first = Open(root);
  const auto second = Open(root);
  CHECK(second->path() != first->path());
  REQUIRE(first->Write(HashOf(1), BlockOf(1)).ok());
  CHECK(second->Scan().empty());
  const std::string path = first->path();
  first.reset();
  CHECK(Open(root)->path() == path);
}

TEST_CASE("block folder: a file that is damaged, cut short, longer or another's is removed") {
  const TempFolder root;
  const auto folder = Open(root);
  REQUIRE(folder->Write(HashOf(1), BlockOf(1)).ok());
  const std::string path = folder->FileOf(HashOf(1));
  const std::string name = fs::relative(path, root.path()).string();
  std::string bytes = root.Read(name);
  const int damage = GENERATE(0, 1, 2, 3, 4, 5);
  if (damage == 0) bytes[500] = static_cast<char>(bytes[500] ^ 1);
  if (damage == 1) bytes.resize(bytes.size() - 1);
  if (damage == 2) bytes += '\0';
  if (damage == 3) bytes.clear();
  if (damage == 4) bytes[bytes.size() - 8] = 'X';  // the mark
  if (damage == 5) {
    REQUIRE(folder->Write(HashOf(2), BlockOf(1)).ok());  // whole, but of another hash
    bytes = root.Read(fs::relative(folder->FileOf(HashOf(2)), root.path()).string());
  }
  root.Write(name, bytes);
  CHECK(Read(*folder, 1) == StatusCode::kDataLoss);
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("block folder: what is no file of a block goes with the next scan") {
  const TempFolder root;
  const auto folder = Open(root);
  REQUIRE(folder->Write(HashOf(1), BlockOf(1)).ok());
  const std::string inside = fs::relative(folder->path(), root.path()).string() + "/";
  const std::vector<std::string> strays = {"000/10_g0/part.tmp", "a.bin", "000/10_g0/short.bin",
                                           "000/99_g0/" + HashOf(0).ToHex() + ".bin"};
  for (const std::string& stray : strays) root.Write(inside + stray, "x");
  CHECK(folder->Scan() == std::vector<BlockHash>{HashOf(1)});
  for (const std::string& stray : strays) CHECK_FALSE(fs::exists(root.PathOf(inside + stray)));
}

TEST_CASE("block folder: a scan has what was used least recently first") {
  const TempFolder root;
  const auto folder = Open(root);
  for (const int number : {1, 2, 3}) {
    REQUIRE(folder->Write(HashOf(number), BlockOf(number)).ok());
    const timespec times[2] = {{0, UTIME_OMIT}, {1000 + number, 0}};
    REQUIRE(utimensat(AT_FDCWD, folder->FileOf(HashOf(number)).c_str(), times, 0) == 0);
  }
  CHECK(Read(*folder, 1) == StatusCode::kOk);
  CHECK(folder->Scan() == std::vector<BlockHash>{HashOf(2), HashOf(3), HashOf(1)});
}

TEST_CASE("block folder: a write that fails leaves nothing") {
  const TempFolder root;
  const auto folder = Open(root);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {kBytes / 2, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Status status = folder->Write(HashOf(1), BlockOf(1));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_handler);
  CHECK_FALSE(status.ok());
  CHECK(Read(*folder, 1) == StatusCode::kNotFound);
  CHECK_FALSE(fs::exists(folder->FileOf(HashOf(1)) + ".tmp"));
}

}  // namespace
}  // namespace tandem
