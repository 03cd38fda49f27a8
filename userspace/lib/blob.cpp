// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* See blob.hpp. */
#include "blob.hpp"

#include <endian.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

namespace peal::detail {

namespace {

constexpr std::uint32_t blob_magic = 0x7065626c; /* "pebl" */
constexpr std::uint8_t blob_version = 1;
constexpr unsigned psn_bits = 24, qp_bits = 24, nonce_bits = 64;
/* The highest bit of a Q_Key has a meaning of its own. */
constexpr unsigned qkey_bits = 31;

std::uint32_t crc32(std::span<const std::byte> bytes) noexcept
{
	constexpr std::uint32_t polynomial = 0xedb88320;
	std::uint32_t crc = UINT32_MAX;

	for (const std::byte one : bytes) {
		crc ^= std::to_integer<std::uint32_t>(one);
		for (int bit = 0; bit < 8; ++bit)
			crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
	}
	return ~crc;
}

std::uint32_t checksum_of(const blob_on_wire &wire) noexcept
{
	return crc32(std::as_bytes(std::span(&wire, 1)).first(offsetof(blob_on_wire, checksum)));
}

blob_kind peer_of(blob_kind mine) noexcept
{
	switch (mine) {
	case blob_kind::initiator:
		return blob_kind::target;
	case blob_kind::target:
		return blob_kind::initiator;
	default:
		return mine;
	}
}

std::uint8_t reads(int limit) noexcept
{
	return static_cast<std::uint8_t>(std::clamp(limit, 0, most_reads));
}

/* Of a blob of this version whose checksum is right. Only a hostile peer has another one. */
bool is_possible(const blob_on_wire &wire) noexcept
{
	if (!wire.addresses || wire.addresses > most_addresses || be32toh(wire.psn) >> psn_bits ||
	    be32toh(wire.qp_number) >> qp_bits || be32toh(wire.datagram_qp) >> qp_bits)
		return false;
	return std::all_of(wire.address, wire.address + wire.addresses,
			   [](const address_on_wire &one) {
				   return one.mtu >= IBV_MTU_256 && one.mtu <= IBV_MTU_4096;
			   });
}

} // namespace

std::uint64_t end_point::random(unsigned bits) noexcept
{
	std::uint64_t made = 0;

	/* It cannot fail for so few bytes. */
	(void)getentropy(&made, sizeof(made));
	return made >> (64 - bits);
}

result<end_point> end_point::make(const context &device, blob_kind kind, const region &mine,
				  const options &limits) noexcept
{
	auto addresses = addresses_of(device);
	end_point made{};

	if (!addresses)
		return addresses.failure();
	made.addresses = *addresses;
	/* A queue pair for datagrams has its port before it knows a peer. */
	if (kind == blob_kind::datagrams) {
		address *const all = made.addresses.all;

		made.addresses.count = std::remove_if(all, all + made.addresses.count,
						      [port = all[0].port](const address &one) {
							      return one.port != port;
						      }) -
				       all;
	}
	made.wire.magic = htobe32(blob_magic);
	made.wire.version = blob_version;
	made.wire.kind = static_cast<std::uint8_t>(kind);
	made.wire.addresses = static_cast<std::uint8_t>(made.addresses.count);
	made.wire.reads_in = reads(device.attr.max_qp_rd_atom);
	made.wire.reads_out = reads(device.attr.max_qp_init_rd_atom);
	made.wire.nonce = random(nonce_bits);
	made.wire.psn = htobe32(static_cast<std::uint32_t>(random(psn_bits)));
	made.wire.qkey = htobe32(static_cast<std::uint32_t>(random(qkey_bits)));
	made.wire.shared = region_on_wire::pack(mine, limits);
	for (std::size_t i = 0; i < made.addresses.count; ++i) {
		std::memcpy(made.wire.address[i].gid, &made.addresses.all[i].gid,
			    sizeof(made.wire.address[i].gid));
		made.wire.address[i].mtu = static_cast<std::uint8_t>(made.addresses.all[i].mtu);
	}
	return made;
}

void end_point::seal() noexcept
{
	wire.checksum = htobe32(checksum_of(wire));
}

result<end_point> end_point::read_peer(std::span<const std::byte> bytes) const noexcept
{
	end_point peer{};

	if (!bytes.empty())
		std::memcpy(&peer.wire, bytes.data(), std::min(bytes.size(), sizeof(peer.wire)));
	if (be32toh(peer.wire.magic) != blob_magic)
		return error::make(EINVAL,
				   "these %zu bytes are no blob of libpeal; give what blob() "
				   "returned to the peer",
				   bytes.size());
	if (peer.wire.version != blob_version)
		return error::make(EPROTO,
				   "the peer has version %u of libpeal's blob, and this program "
				   "has %u; install one libpeal on both hosts",
				   peer.wire.version, blob_version);
	if (bytes.size() != sizeof(peer.wire))
		return error::make(EMSGSIZE,
				   "the blob has %zu bytes, and its peer made %zu; carry all of it",
				   bytes.size(), sizeof(peer.wire));
	if (be32toh(peer.wire.checksum) != checksum_of(peer.wire))
		return error::make(EBADMSG, "the blob was changed on its way; carry it as bytes, "
					    "and not as text");
	if (!is_possible(peer.wire))
		return error::make(EINVAL,
				   "the blob has an address or a number that cannot be; see what "
				   "program made it");
	if (peer.wire.nonce == wire.nonce)
		return error::make(ELOOP,
				   "this is the program's own blob; give it that of its peer");
	if (blob_kind(peer.wire.kind) != peer_of(blob_kind(wire.kind)))
		return error::make(EPROTO,
				   "the peer's blob is for another kind of queue pair; let both "
				   "make the same, with the same options.transport, and with xrc "
				   "one of them a target");
	peer.addresses.count = peer.wire.addresses;
	for (std::size_t i = 0; i < peer.addresses.count; ++i) {
		address &to = peer.addresses.all[i];

		std::memcpy(&to.gid, peer.wire.address[i].gid, sizeof(to.gid));
		to.mtu = static_cast<ibv_mtu>(peer.wire.address[i].mtu);
	}
	return peer;
}

} // namespace peal::detail
