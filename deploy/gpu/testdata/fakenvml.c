/*
 * A library with NVML's versioned symbols that answers from a text file, which
 * $FAKENVML_STATE names and which is read anew at every call:
 *
 *   driver VERSION            "none": the kernel module is not loaded; "stuck": no call returns while it says so
 *   gpu UUID                  begins a GPU; the lines below it are its own
 *   set NAME NUMBER           pci mem_total mem_used util temp power ecc_uncorrected remap_pending remap_failed
 *                             retire_pending throttle mig lost broken
 *   name TEXT
 *   proc PID BYTES
 *   mig_instance UUID GPU_INSTANCE BYTES PROFILE
 *   mig_proc PID BYTES        on the last instance; the GPU tells of it, too
 *   nvlink PCI                one link to the GPU whose pci is this number
 *   near INDEX LEVEL          nvmlGpuTopologyLevel_t to the GPU at INDEX; 50 without
 *   xid SERIAL CODE           reported once, when SERIAL is the largest so far
 *
 * It includes nothing of NVIDIA's: layouts are those of the public ABI.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, NO_DRIVER = 9, TIMEOUT = 10, LOST = 15, UNKNOWN = 999 };
enum { GPUS = 16, PER_GPU = 32 };

typedef struct {
	char uuid[96], name[96];
	unsigned long long pci, mem_total, mem_used, util, temp, power, ecc_uncorrected, remap_pending, remap_failed, retire_pending, throttle, mig, lost,
	    broken;
	unsigned procs, pids[PER_GPU], links, link_to[PER_GPU], near[GPUS], xids, instances;
	unsigned long long proc_mem[PER_GPU];
	unsigned long long xid_serial[PER_GPU], xid_code[PER_GPU];
	int is_instance, gpu_instance, instance_at[PER_GPU];
} device;

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
typedef struct { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event;

/* What was read last belongs to the thread that read it: callers are many. Handles are therefore numbers. */
static __thread device gpus[GPUS], instances[GPUS * PER_GPU];
static __thread unsigned count, instance_count;
static __thread char driver[96];
static _Atomic int up;
static _Atomic unsigned long long reported;

enum { FIRST_INSTANCE = 1000 };

static void *handle(int index) { return (void *)(size_t)(index + 1); }

static device *at(void *h)
{
	size_t i = (size_t)h - 1;
	return i >= FIRST_INSTANCE ? &instances[i - FIRST_INSTANCE] : &gpus[i];
}

static void set(device *d, const char *key, unsigned long long v)
{
#define FIELD(f) if (!strcmp(key, #f)) d->f = v
	FIELD(pci); FIELD(mem_total); FIELD(mem_used); FIELD(util); FIELD(temp); FIELD(power); FIELD(ecc_uncorrected);
	FIELD(remap_pending); FIELD(remap_failed); FIELD(retire_pending); FIELD(throttle); FIELD(mig); FIELD(lost); FIELD(broken);
}

static void load(void);

/* What a call does first. */
static void begin(void)
{
	for (load(); !strcmp(driver, "stuck"); load())
		nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
}

static void load(void)
{
	char line[256], a[128], b[128];
	unsigned long long x, y;
	const char *path = getenv("FAKENVML_STATE");
	FILE *f = path ? fopen(path, "r") : NULL;
	device *d = NULL;
	count = instance_count = 0;
	strcpy(driver, "none");
	memset(gpus, 0, sizeof gpus);
	memset(instances, 0, sizeof instances);
	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "driver %95s", a) == 1) {
			strcpy(driver, a);
		} else if (sscanf(line, "gpu %95s", a) == 1 && count < GPUS) {
			d = &gpus[count++];
			strcpy(d->uuid, a);
			strcpy(d->name, "Fake GPU");
			for (int i = 0; i < GPUS; i++)
				d->near[i] = 50;
		} else if (!d) {
			continue;
		} else if (sscanf(line, "set %127s %llu", a, &x) == 2) {
			set(d, a, x);
		} else if (sscanf(line, "name %95[^\n]", a) == 1) {
			strcpy(d->name, a);
		} else if (sscanf(line, "proc %llu %llu", &x, &y) == 2 && d->procs < PER_GPU) {
			d->pids[d->procs] = x;
			d->proc_mem[d->procs++] = y;
		} else if (sscanf(line, "nvlink %llu", &x) == 1 && d->links < PER_GPU) {
			d->link_to[d->links++] = x;
		} else if (sscanf(line, "near %llu %llu", &x, &y) == 2 && x < GPUS) {
			d->near[x] = y;
		} else if (sscanf(line, "xid %llu %llu", &x, &y) == 2 && d->xids < PER_GPU) {
			d->xid_serial[d->xids] = x;
			d->xid_code[d->xids++] = y;
		} else if (sscanf(line, "mig_instance %95s %llu %llu %63s", b, &x, &y, a) == 4 && d->instances < PER_GPU) {
			device *i = &instances[instance_count];
			strcpy(i->uuid, b);
			snprintf(i->name, sizeof i->name, "Fake GPU MIG %.63s", a);
			i->is_instance = 1;
			i->gpu_instance = x;
			i->mem_total = y;
			d->instance_at[d->instances++] = instance_count++;
		} else if (sscanf(line, "mig_proc %llu %llu", &x, &y) == 2 && d->instances && d->procs < PER_GPU) {
			device *i = &instances[d->instance_at[d->instances - 1]];
			i->pids[i->procs] = d->pids[d->procs] = x;
			i->proc_mem[i->procs++] = d->proc_mem[d->procs++] = y;
		}
	}
	if (f)
		fclose(f);
}

static int usable(device *d)
{
	if (!up)
		return UNINITIALIZED;
	begin();
	if (!strcmp(driver, "none"))
		return NO_DRIVER;
	if (d && d->lost)
		return LOST;
	return d && d->broken ? UNKNOWN : OK;
}

#define ASK(d) do { int ret = usable(d); if (ret) return ret; } while (0)

int nvmlInit_v2(void)
{
	begin();
	if (!strcmp(driver, "none"))
		return NO_DRIVER;
	up++;
	return OK;
}

int nvmlShutdown(void)
{
	if (!up)
		return UNINITIALIZED;
	up--;
	return OK;
}

const char *nvmlErrorString(int code)
{
	switch (code) {
	case OK: return "Success";
	case UNSUPPORTED: return "Not Supported";
	case NO_DRIVER: return "Driver Not Loaded";
	case TIMEOUT: return "Timeout";
	case LOST: return "GPU is lost";
	}
	return "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *v, unsigned n) { ASK(NULL); snprintf(v, n, "%s", driver); return OK; }
int nvmlSystemGetCudaDriverVersion(int *v) { ASK(NULL); *v = 12040; return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { ASK(NULL); *n = count; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d)
{
	ASK(NULL);
	if (i >= count)
		return INVALID;
	*d = handle(i);
	return gpus[i].lost == 2 ? LOST : OK;
}

int nvmlDeviceGetUUID(void *h, char *v, unsigned n) { device *d = at(h); ASK(d); snprintf(v, n, "%s", d->uuid); return OK; }
int nvmlDeviceGetName(void *h, char *v, unsigned n) { device *d = at(h); ASK(d); snprintf(v, n, "%s", d->name); return OK; }

int nvmlDeviceGetPciInfo_v3(void *h, pci_info *v)
{
	device *d = at(h);
	ASK(d);
	memset(v, 0, sizeof *v);
	v->bus = d->pci;
	snprintf(v->bus_id, sizeof v->bus_id, "00000000:%02X:00.0", v->bus);
	return OK;
}

int nvmlDeviceGetMemoryInfo(void *h, memory *v)
{
	device *d = at(h);
	ASK(d);
	v->total = d->mem_total;
	v->used = d->mem_used;
	v->free = d->mem_total - d->mem_used;
	return OK;
}

int nvmlDeviceGetUtilizationRates(void *h, utilization *v) { device *d = at(h); ASK(d); v->gpu = d->util; v->memory = 0; return OK; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *v) { device *d = at(h); (void)sensor; ASK(d); *v = d->temp; return OK; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *v) { device *d = at(h); ASK(d); *v = d->power; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *v) { device *d = at(h); ASK(d); *v = 700000; return OK; }
int nvmlDeviceGetEccMode(void *h, int *now, int *next) { device *d = at(h); ASK(d); *now = *next = 1; return OK; }

int nvmlDeviceGetTotalEccErrors(void *h, int type, int counter, unsigned long long *v)
{
	device *d = at(h);
	(void)counter;
	ASK(d);
	*v = type == 1 ? d->ecc_uncorrected : 0;
	return OK;
}

int nvmlDeviceGetRemappedRows(void *h, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed)
{
	device *d = at(h);
	ASK(d);
	*correctable = *uncorrectable = 0;
	*pending = d->remap_pending;
	*failed = d->remap_failed;
	return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *h, int *v) { device *d = at(h); ASK(d); *v = d->retire_pending; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *v) { device *d = at(h); ASK(d); *v = d->throttle; return OK; }
int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *next) { device *d = at(h); ASK(d); *now = *next = d->mig; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *v) { device *d = at(h); ASK(d); *v = 7; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned i, void **v)
{
	device *d = at(h);
	ASK(d);
	if (i >= d->instances)
		return NOT_FOUND;
	*v = handle(FIRST_INSTANCE + d->instance_at[i]);
	return OK;
}

int nvmlDeviceGetGpuInstanceId(void *h, unsigned *v) { device *d = at(h); ASK(d); *v = d->gpu_instance; return d->is_instance ? OK : INVALID; }

int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, process *v)
{
	device *d = at(h);
	ASK(d);
	unsigned room = *n;
	*n = d->procs;
	if (room < d->procs)
		return SMALL;
	for (unsigned i = 0; i < d->procs; i++)
		v[i] = (process){ d->pids[i], d->proc_mem[i], ~0u, ~0u };
	return OK;
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *h, unsigned *n, process *v) { device *d = at(h); (void)v; ASK(d); *n = 0; return OK; }

int nvmlDeviceGetTopologyCommonAncestor(void *h, void *other, unsigned *v)
{
	device *d = at(h);
	ASK(d);
	*v = d->near[(size_t)other - 1];
	return OK;
}

int nvmlDeviceGetNvLinkState(void *h, unsigned link, int *v)
{
	device *d = at(h);
	ASK(d);
	if (link >= d->links)
		return INVALID;
	*v = 1;
	return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *h, unsigned link, pci_info *v)
{
	device *d = at(h);
	ASK(d);
	memset(v, 0, sizeof *v);
	v->bus = d->link_to[link];
	return OK;
}

int nvmlDeviceGetSupportedEventTypes(void *h, unsigned long long *v) { device *d = at(h); ASK(d); *v = 8; return OK; }
int nvmlEventSetCreate(void **set) { ASK(NULL); *set = handle(0); return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(void *h, unsigned long long types, void *set) { device *d = at(h); (void)types; (void)set; ASK(d); return OK; }

int nvmlEventSetWait_v2(void *set, event *e, unsigned ms)
{
	(void)set;
	for (unsigned waited = 0;; waited += 20) {
		ASK(NULL);
		for (unsigned i = 0; i < count; i++)
			for (unsigned j = 0; j < gpus[i].xids; j++)
				if (gpus[i].xid_serial[j] > reported) {
					reported = gpus[i].xid_serial[j];
					*e = (event){ handle(i), 8, gpus[i].xid_code[j], ~0u, ~0u };
					return OK;
				}
		if (waited >= ms)
			return TIMEOUT;
		nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
	}
}
