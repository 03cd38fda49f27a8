// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The checks of this host and of this process: module, provider, memory, device files.
 */
#include "finding.hpp"
#include "formatted.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <rdma/peal-abi.h>

namespace peal::tool {

namespace {

namespace fs = std::filesystem;

std::string kernel_release()
{
	utsname name;

	uname(&name);
	return name.release;
}

/* Return: what modinfo says about the module that is installed for this kernel. */
std::optional<std::string> module_field(const char *field)
{
	auto text = output_of(formatted("modinfo -F {} peal", field));

	if (!text)
		return {};
	text->erase(std::min(text->find('\n'), text->size()));
	return text;
}

/* Return: the name of the uverbs file of a device, such as uverbs0. */
std::optional<std::string> uverbs_of(const std::string &device)
{
	std::error_code error;

	for (const auto &entry : fs::directory_iterator("/sys/class/infiniband_verbs", error))
		if (first_line(entry.path() / "ibdev") == device)
			return entry.path().filename();
	return {};
}

void check_module_to_load(Findings &findings)
{
	const auto release = kernel_release();
	const auto built_for = module_field("vermagic");

	if (built_for && built_for->starts_with(release + " "))
		return findings.add(Verdict::PROBLEM, "module",
				    formatted("peal is installed for {}, but not loaded", release),
				    "type \"modprobe peal\"");
	if (built_for)
		return findings.add(Verdict::PROBLEM, "module",
				    formatted("the installed module is for {}, and {} runs",
					      built_for->substr(0, built_for->find(' ')), release),
				    "build it again: \"dkms autoinstall\"");
	if (!fs::exists("/lib/modules/" + release + "/build/Makefile"))
		return findings.add(
			Verdict::PROBLEM, "module",
			formatted("peal is not installed for {}, whose headers are "
				  "missing",
				  release),
			formatted("type \"apt-get install peal-dkms linux-headers-{}\"", release));
	findings.add(
		Verdict::PROBLEM, "module", formatted("peal is not installed for {}", release),
		"type \"apt-get install peal-dkms\", or \"dkms autoinstall\" if it is installed");
}

/* Return: false if a module and this tool do not speak the same interface. */
bool check_interface(Findings &findings, const std::vector<Patient> &patients)
{
	for (const auto &patient : patients) {
		const auto file = uverbs_of(patient.device.name);
		const auto version = first_line(
			formatted("/sys/class/infiniband_verbs/{}/abi_version", file.value_or("")));

		if (version && *version != std::to_string(PEAL_ABI_VERSION)) {
			findings.add(
				Verdict::PROBLEM, "module",
				formatted("the loaded module has version {} of the interface, "
					  "and the installed programs have {}",
					  *version, PEAL_ABI_VERSION),
				"install all packages of one release, and type \"systemctl restart "
				"peal-links\"");
			return false;
		}
		if (!patient.device.options.rate || !patient.device.options.ecn) {
			findings.add(
				Verdict::WARNING, "module",
				"the loaded module is older than this tool and lacks options",
				"upgrade peal-dkms, and type \"systemctl restart peal-links\"");
			return false;
		}
	}
	return true;
}

} /* namespace */

void check_module(Findings &findings, const std::vector<Patient> &patients)
{
	if (!fs::exists("/sys/module/peal"))
		return check_module_to_load(findings);
	if (!check_interface(findings, patients))
		return;
	const auto loaded = first_line("/sys/module/peal/srcversion");
	const auto installed = module_field("srcversion");
	if (!installed)
		return findings.add(
			Verdict::WARNING, "module",
			formatted("peal is loaded, but not installed for {}", kernel_release()),
			"install peal-dkms, otherwise it is gone after a reboot");
	if (loaded && *installed != *loaded)
		return findings.add(Verdict::WARNING, "module",
				    "the loaded module is not the one that is installed",
				    "type \"systemctl restart peal-links\" to replace it");
	findings.ok("module", formatted("peal {} is loaded, built for {}",
					first_line("/sys/module/peal/version").value_or(""),
					kernel_release()));
}

/* ---- the provider ---- */

namespace {

/* What a libibverbs that is loaded says, without linking with it. */
struct Verbs {
	std::string release;		  /* of rdma-core */
	std::vector<std::string> devices; /* that programs see */
	std::string complaint;		  /* what it printed about peal */
};

/* libibverbs prints why it does not load a provider. This turns stderr into a file meanwhile. */
class CapturedErrors {
public:
	CapturedErrors() : saved(dup(STDERR_FILENO)), file(memfd_create("stderr", 0))
	{
		std::fflush(stderr);
		dup2(file, STDERR_FILENO);
	}

	~CapturedErrors()
	{
		restore();
		close(file);
	}

	CapturedErrors(const CapturedErrors &) = delete;
	CapturedErrors &operator=(const CapturedErrors &) = delete;

	/* Return: the first line that names peal. */
	std::string line()
	{
		restore();
		std::ifstream text(formatted("/proc/self/fd/{}", file));
		for (std::string line; std::getline(text, line);)
			if (line.find("peal") != std::string::npos)
				return line;
		return "";
	}

private:
	void restore()
	{
		if (saved < 0)
			return;
		std::fflush(stderr);
		dup2(saved, STDERR_FILENO);
		close(saved);
		saved = -1;
	}

	int saved;
	int file;
};

/* Return: 44 for a file such as libibverbs.so.1.14.44.0, which Debian's release number names. */
std::string release_of(void *function)
{
	Dl_info info;
	std::error_code error;

	if (!dladdr(function, &info) || !info.dli_fname)
		return "of unknown release";
	const auto name = fs::canonical(info.dli_fname, error).filename().string();
	std::istringstream words(name);
	std::string word;
	/* The words are libibverbs, so, 1, 14, 44 and 0. */
	for (int i = 0; i < 5; i++)
		if (!std::getline(words, word, '.'))
			return "of unknown release";
	return "of rdma-core " + word;
}

std::optional<Verbs> load_verbs()
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	struct ibv_device;

	if (!library)
		return {};
	const auto list =
		reinterpret_cast<ibv_device **(*)(int *)>(dlsym(library, "ibv_get_device_list"));
	const auto name = reinterpret_cast<const char *(*)(ibv_device *)>(
		dlsym(library, "ibv_get_device_name"));
	const auto free_list =
		reinterpret_cast<void (*)(ibv_device **)>(dlsym(library, "ibv_free_device_list"));
	if (!list || !name || !free_list)
		return {};
	Verbs verbs{release_of(reinterpret_cast<void *>(list)), {}, ""};
	CapturedErrors errors;
	int count = 0;
	if (ibv_device **devices = list(&count)) {
		for (int i = 0; i < count; i++)
			verbs.devices.emplace_back(name(devices[i]));
		free_list(devices);
	}
	verbs.complaint = errors.line();
	return verbs;
}

} /* namespace */

void check_provider(Findings &findings, const std::vector<Patient> &patients)
{
	const auto verbs = load_verbs();

	if (!verbs)
		return findings.add(Verdict::PROBLEM, "provider", "there is no libibverbs.so.1",
				    "type \"apt-get install ibverbs-provider-peal\"");
	for (const auto &patient : patients) {
		const auto &name = patient.device.name;

		/* libibverbs passes over a device without a file, which check_nodes() finds. */
		if (!fs::exists("/dev/infiniband/" + uverbs_of(name).value_or("")))
			continue;
		if (std::ranges::find(verbs->devices, name) != verbs->devices.end())
			continue;
		return findings.add(Verdict::PROBLEM, "provider",
				    formatted("programs do not see {} with libibverbs {}{}{}",
					      patient.device.name, verbs->release,
					      verbs->complaint.empty() ? "" : ", which says: ",
					      verbs->complaint),
				    "type \"apt-get install --reinstall ibverbs-provider-peal\"");
	}
	if (patients.empty())
		return findings.add(Verdict::UNKNOWN, "provider",
				    formatted("libibverbs {} is there; whether it finds peal's "
					      "provider shows when there is a device",
					      verbs->release),
				    "make a device, and run the command again");
	findings.ok("provider",
		    formatted("programs see the devices with libibverbs {}", verbs->release));
}

/* ---- memory ---- */

namespace {

bool has_capability(int capability)
{
	std::ifstream status("/proc/self/status");

	for (std::string line; std::getline(status, line);)
		if (line.starts_with("CapEff:"))
			return std::strtoull(line.c_str() + 7, nullptr, 16) >> capability & 1;
	return false;
}

/* Below this, programs that register their buffers are likely to fail. Debian's default is 8 MiB.
 */
constexpr rlim_t LITTLE_MEMORY = 64 << 20;

} /* namespace */

void check_memlock(Findings &findings)
{
	rlimit limit{};

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (has_capability(CAP_IPC_LOCK))
		return findings.ok("memlock", "this user may register memory without a limit");
	if (limit.rlim_cur == RLIM_INFINITY)
		return findings.ok("memlock", "the limit of locked memory is unlimited");
	const auto kib = limit.rlim_cur >> 10;
	findings.add(kib == 0			      ? Verdict::PROBLEM
		     : limit.rlim_cur < LITTLE_MEMORY ? Verdict::WARNING
						      : Verdict::OK,
		     "memlock",
		     formatted("programs of this user may register {} KiB of memory", kib),
		     limit.rlim_cur < LITTLE_MEMORY
			     ? "raise it: \"* - memlock unlimited\" in /etc/security/limits.conf"
			     : "");
}

/* ---- device files ---- */

namespace {

/* Return: whether this process may open the file for reading and writing. */
bool may_open(const std::string &path)
{
	return faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) == 0;
}

} /* namespace */

void check_nodes(Findings &findings, const std::vector<Patient> &patients)
{
	const std::string folder = "/dev/infiniband/";

	for (const auto &patient : patients) {
		const auto file = uverbs_of(patient.device.name);

		if (!file)
			return findings.add(
				Verdict::PROBLEM, "nodes",
				formatted("{} has no uverbs device", patient.device.name),
				"type \"modprobe ib_uverbs\"");
		if (!fs::exists(folder + *file))
			return findings.add(
				Verdict::PROBLEM, "nodes",
				formatted("{}{} of {} is missing", folder, *file,
					  patient.device.name),
				formatted("on a host start udev, in a container add \"--device "
					  "{}{}\"",
					  folder, *file));
		if (!may_open(folder + *file))
			return findings.add(
				Verdict::PROBLEM, "nodes",
				formatted("this user may not open {}{}", folder, *file),
				formatted("as root type \"chmod 666 {}{}\"", folder, *file));
	}
	if (!may_open(folder + "rdma_cm"))
		return findings.add(Verdict::WARNING, "nodes",
				    formatted("{}rdma_cm cannot be opened, so that programs "
					      "cannot use the connection manager",
					      folder),
				    "type \"modprobe rdma_ucm\" as root");
	findings.ok("nodes", "this user may open the device files");
}

} /* namespace peal::tool */
